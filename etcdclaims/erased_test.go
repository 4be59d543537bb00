package etcdclaims_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// first returns the first etcd key below the prefix and the part.
func (w *world) first(part string) string {
	w.Helper()
	resp, err := w.Raw.Get(context.Background(), w.Prefix+part, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	noErr(w, err)
	if len(resp.Kvs) == 0 {
		w.Fatalf("no key below %s", part)
	}
	return string(resp.Kvs[0].Key)
}

// A caller whose place in line was deleted by hand joins the line again, as the last, when the key
// changes hands.
func TestPlaceDeleted(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b, c := w.peer(), w.peer(), w.peer()
		holder := tryClaim(t, a, "k")
		second := acquiring(ctx, b, "k")
		time.Sleep(sec)
		third := acquiring(ctx, c, "k")
		time.Sleep(sec)
		w.Server.Delete(t, w.first("wait/"))
		time.Sleep(6 * sec)
		release(t, holder)
		next := w.within(sec, third)
		time.Sleep(6 * sec)
		if line, err := admin.Line(ctx, a, "k"); err != nil || len(line) != 1 || line[0].Instance != b.Instance() {
			t.Errorf("in line: %+v, %v", line, err)
		}
		release(t, next)
		release(t, w.within(sec, second))
		w.CloseClean(a, b, c)
	})
}

// A sentinel that was deleted by hand ends the claims of its session at once. Their keys are free
// when the lease ends.
func TestSentinelDeleted(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		cl := tryClaim(t, a, "k")
		w.Server.Delete(t, w.first("session/"))
		time.Sleep(250 * time.Millisecond)
		if err := cl.Check(); !errors.Is(err, etcdclaims.ErrLost) {
			t.Errorf("got %v", err)
		}
		next := w.within(16*sec, acquiring(ctx, b, "k"))
		again := acquiring(ctx, a, "k")
		release(t, next)
		release(t, w.within(sec, again))
	})
}
