package work_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func recordKeys(t *testing.T, c *client, prefix string, states ...work.State) []string {
	t.Helper()
	var keys []string
	for r, err := range c.Records(t.Context(), prefix, states...) {
		noErr(t, err)
		keys = append(keys, r.Key)
	}
	return keys
}

func TestRecords(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	core, logged := observer.New(zap.WarnLevel)
	a, b, prefix := twoOwners(t, etcd, config{Logger: zap.New(core)})
	if got := recordKeys(t, b, ""); len(got) != 0 {
		t.Errorf("records of nothing: %v", got)
	}
	tryBegin(t, a, "s/claimed")
	noErr(t, tryBegin(t, a, "s/done").Complete(ctx))
	noErr(t, failing(ctx, tryBegin(t, a, "s/failed"), errors.New("x")))
	noErr(t, failing(ctx, tryBegin(t, a, "s/dead"), etcdclaims.Permanent(errors.New("x"))))
	noErr(t, failing(ctx, tryBegin(t, a, "s/free"), etcdclaims.RetryAfter(errors.New("x"), 0)))
	noErr(t, tryBegin(t, a, "s/free").Release(ctx))
	tryClaim(t, a, "s/claim") // without a record
	orphaned(t, etcd, prefix, []string{"s/orphaned"})
	_, err := etcd.Put(ctx, prefix+"work/s/newer", `{"v":99}`)
	noErr(t, err)
	_, err = etcd.Put(ctx, prefix+"work/s/garbage", "\xff")
	noErr(t, err)
	var many []string
	for i := range 1200 {
		many = append(many, fmt.Sprintf("many/%04d", i))
	}
	orphaned(t, etcd, prefix, many)

	for _, tt := range []struct {
		states []work.State
		want   string
	}{
		{nil, "[s/claimed s/dead s/done s/failed s/free s/garbage s/newer s/orphaned]"},
		{[]work.State{work.StateOrphaned}, "[s/orphaned]"},
		{[]work.State{work.StateClaimed}, "[s/claimed]"},
		{[]work.State{work.StateDead, work.StateFailed}, "[s/dead s/failed]"},
		{[]work.State{work.StateDone, work.StateFree}, "[s/done s/free]"},
		{[]work.State{work.StateUnreadable}, "[s/garbage s/newer]"},
	} {
		if got := fmt.Sprint(recordKeys(t, b, "s/", tt.states...)); got != tt.want {
			t.Errorf("in %v: %s, want %s", tt.states, got, tt.want)
		}
	}
	for r, err := range b.Records(ctx, "s/", work.StateUnreadable) {
		if err != nil || r.Error == "" || r.State != work.StateUnreadable {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if got := recordKeys(t, b, "many/"); !slices.Equal(got, many) {
		t.Errorf("%d records, want %d", len(got), len(many))
	}
	logged.TakeAll()
	o, err := orphansOf(ctx, b, 0)
	if err != nil || len(o) != 1201 {
		t.Errorf("%d orphans, %v", len(o), err)
	}
	if l := logged.FilterMessageSnippet("cannot be read").All(); len(l) != 1 || l[0].ContextMap()["records"] != int64(2) {
		t.Errorf("logged of records that cannot be read: %v", l)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	n := 0
	for _, err := range b.Records(ended, "") {
		n++
		wantIs(t, err, context.Canceled)
	}
	if n != 1 {
		t.Errorf("%d yields of a context that has ended", n)
	}
}

// Records yields nothing of work whose record was deleted while it was read.
func TestRecordsOfWorkThatIsGivenBack(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		b, host := w.client(config{TTL: 15 * sec})
		job := tryBegin(t, w.peer(), "k")
		host.Inject(claimtest.Fault{On: claimtest.Verify, Skip: 1, Saw: func(any) { noErr(t, job.Release(ctx)) }})
		for r, err := range b.Records(ctx, "") {
			t.Errorf("yielded %+v, %v", r, err)
		}
	})
}

// orphaned puts records of work whose owners are gone.
func orphaned(t *testing.T, etcd *clientv3.Client, prefix string, keys []string) {
	t.Helper()
	for len(keys) > 0 {
		n := min(len(keys), 100)
		var ops []clientv3.Op
		for _, key := range keys[:n] {
			ops = append(ops, clientv3.OpPut(prefix+"work/"+key, `{"v":1,"state":"claimed","attempt":3,"claim":"c","owner":"dead","instance":"i"}`))
		}
		_, err := etcd.Txn(t.Context()).Then(ops...).Commit()
		noErr(t, err)
		keys = keys[n:]
	}
}

func TestOrphans(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, prefix := twoOwners(t, etcd, config{})
	if o, err := orphansOf(ctx, b, 0); err != nil || len(o) != 0 {
		t.Errorf("orphans of nothing: %v, %v", o, err)
	}
	// Among them, work that is no orphan for every reason there is.
	live := tryBegin(t, a, "k0100-live")
	noErr(t, tryBegin(t, a, "k0200-done").Complete(ctx))
	noErr(t, failing(ctx, tryBegin(t, a, "k0300-failed"), errors.New("x")))
	noErr(t, failing(ctx, tryBegin(t, a, "k0400-dead"), etcdclaims.Permanent(errors.New("x"))))
	noErr(t, failing(ctx, tryBegin(t, a, "k0500-free"), etcdclaims.RetryAfter(errors.New("x"), 0)))
	noErr(t, tryBegin(t, a, "k0500-free").Release(ctx))
	tryClaim(t, a, "k0600-claim")
	var want []string
	for i := range 1200 {
		want = append(want, fmt.Sprintf("k%04d", i))
	}
	orphaned(t, etcd, prefix, want)
	sort.Strings(want)

	requests := b.Stats().Requests
	for _, limit := range []int{0, 1, 2, 511, 512, 513, 1199, 1200, 5000} {
		got, err := orphansOf(ctx, b, limit)
		noErr(t, err)
		n := len(want)
		if limit > 0 {
			n = min(n, limit)
		}
		if len(got) != n {
			t.Fatalf("limit %d: %d orphans, want %d", limit, len(got), n)
		}
		for i, r := range got {
			if r.Key != want[i] || r.State != work.StateOrphaned || r.Attempt != 3 || r.Owner != "dead" {
				t.Fatalf("limit %d: orphan %d is %+v, want key %s", limit, i, r, want[i])
			}
		}
	}
	t.Logf("%d requests", b.Stats().Requests-requests)

	// It changed nothing, and what it found can be begun.
	w := tryBegin(t, b, "k0007")
	if w.Attempt() != 4 {
		t.Errorf("attempt %d", w.Attempt())
	}
	noErr(t, live.Check())
	if got, err := orphansOf(ctx, b, 8); err != nil || len(got) != 8 || got[7].Key != "k0008" {
		t.Errorf("%v, %v", got, err)
	}
}

// A server with a lower limit of operations than the usual, which the client
// learns of by being refused, must not end in a client that can do nothing.
func TestOrphansWithFewTxnOps(t *testing.T) {
	t.Parallel()
	etcd := testetcd.Start(t, testetcd.NoSync(), testetcd.MaxTxnOps(16)).Client(t)
	a, _, prefix := twoOwners(t, etcd, config{})
	for _, n := range []int{17, 20, 100, 600} {
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprintf("%d", i))
		}
		orphaned16 := keys
		for len(orphaned16) > 0 {
			m := min(len(orphaned16), 16)
			orphaned(t, etcd, prefix, orphaned16[:m])
			orphaned16 = orphaned16[m:]
		}
		got, err := orphansOf(t.Context(), a, 0)
		noErr(t, err)
		if len(got) != n {
			t.Errorf("%d orphans, want %d", len(got), n)
		}
		tryClaim(t, a, fmt.Sprint("after-", n))
	}
}
