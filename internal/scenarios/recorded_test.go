package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/history"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A recorder is a process that acquires keys and writes under them, and records
// all of that.
type recorder struct {
	h     *history.History
	name  string
	etcd  *clientv3.Client
	c     *etcdclaims.Client
	rnd   *rand.Rand
	fence bool // compare fences, as one should
}

func newRecorder(t *testing.T, h *history.History, name string, etcd *clientv3.Client, seed uint64) *recorder {
	t.Helper()
	w := &recorder{h: h, name: name, etcd: etcd, rnd: rand.New(rand.NewPCG(seed, 0)), fence: true}
	c, err := etcdclaims.New(etcd, etcdclaims.Config{Owner: name, Hooks: etcdclaims.Hooks{
		TermEnded: func(_ context.Context, term etcdclaims.TermInfo) {
			if errors.Is(term.Err, etcdclaims.ErrLost) {
				h.Ended(name, term.Token)
			}
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	w.c = c
	return w
}

// round acquires a key, works for some seconds, and releases it.
func (w *recorder) round(ctx context.Context, key string) {
	acquire, call := w.c.TryAcquire, w.h.Acquire(w.name, key)
	if w.rnd.IntN(2) == 0 {
		acquire = w.c.Acquire
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cl, err := acquire(ctx, key)
	call.Acquired(cl, err)
	if err != nil {
		return
	}
	for range w.rnd.IntN(4) {
		time.Sleep(time.Duration(w.rnd.Int64N(int64(3 * time.Second))))
		if cl.Check() == nil {
			w.h.Checked(w.name, cl.Token())
		}
		w.write(ctx, cl)
	}
	call = w.h.Release(w.name, cl.Token())
	call.Returned(cl.Release(ctx))
	w.write(ctx, cl) // too late
}

func (w *recorder) write(ctx context.Context, cl *etcdclaims.Claim) {
	call := w.h.Effect(w.name, cl.Token())
	put := clientv3.OpPut("/written/"+cl.Key(), fmt.Sprint(cl.Fence()))
	if w.rnd.IntN(2) == 0 && w.fence {
		_, err := cl.Txn(ctx).Then(put).Commit()
		call.Returned(err)
		return
	}
	cmps := cl.Guard()
	if !w.fence {
		cmps = nil
	}
	resp, err := w.etcd.Txn(ctx).If(cmps...).Then(put).Commit()
	switch {
	case err != nil:
		call.Unknown()
	case resp.Succeeded:
		call.Done()
	default:
		call.Refused()
	}
}

// What clients of the real etcd do is right by all rules, and is not once they
// do not compare fences.
func TestRecorded(t *testing.T) {
	record := func(t *testing.T, fence bool) *history.History {
		t.Helper()
		h := history.New()
		server := testetcd.StartVirtual(t)
		raw := server.Client(t)
		var workers sync.WaitGroup
		for i := range 4 {
			w := newRecorder(t, h, fmt.Sprint("worker", i), server.Client(t), uint64(i))
			w.fence = fence
			workers.Go(func() {
				for range 25 {
					w.round(t.Context(), fmt.Sprint("key", w.rnd.IntN(2)))
				}
			})
		}
		for i := range 4 {
			time.Sleep(17 * time.Second)
			key := fmt.Sprint("key", i%2)
			h.Logf("%s is deleted", key)
			call := h.Take(key)
			_, err := raw.Delete(t.Context(), etcdclaims.DefaultPrefix+"own/"+key)
			if err != nil {
				t.Error(err)
			}
			call.Done()
		}
		workers.Wait()
		return h
	}
	t.Run("fenced", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := record(t, true)
			h.Verify(t, history.Checks{})
			var text strings.Builder
			noErr(t, h.Write(&text))
			for _, kind := range []string{"granted", "done", "refused", "checked", "ended"} {
				n := strings.Count(text.String(), `"kind":"`+kind+`"`)
				if t.Logf("%d %s", n, kind); n == 0 {
					t.Errorf("nothing is recorded as %s", kind)
				}
			}
		})
	})
	t.Run("not fenced", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var v *history.Violation
			if err := record(t, false).Check(history.Checks{}); !errors.As(err, &v) || v.Rule != history.Linearizable {
				t.Errorf("writes that compare no fence are all right: %v", err)
			}
		})
	})
}

// ForceRelease, in real time: the order of records is all that is certain.
func TestRecordedInRealTime(t *testing.T) {
	h := history.New()
	server := testetcd.Shared(t)
	a, b := newRecorder(t, h, "a", server.Client(t), 1), newRecorder(t, h, "b", server.Client(t), 2)
	key := testetcd.Prefix(t)
	call := h.Acquire(a.name, key)
	cl, err := a.c.TryAcquire(t.Context(), key)
	call.Acquired(cl, err)
	if err != nil {
		t.Fatal(err)
	}
	call = h.Take(key)
	if err := admin.ForceRelease(t.Context(), b.c, key, "test"); err != nil {
		t.Error(err)
	}
	call.Done()
	b.round(t.Context(), key)
	<-cl.Done()
	a.write(t.Context(), cl)
	h.Verify(t, history.Checks{})
}
