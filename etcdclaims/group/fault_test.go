package group_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
)

// Each kind of request is lost, and carried out with its reply lost, while a member joins
// and leaves.
func TestLostRequestsAndReplies(t *testing.T) {
	t.Parallel()
	for _, kind := range []claimtest.Kind{
		steps.Take, steps.Enqueue, steps.Resolve, claimtest.Grant, steps.Sentinel, claimtest.KeepAlive, claimtest.Verify,
		claimtest.Watch, claimtest.Other, steps.HandOver, steps.Free, claimtest.Range, claimtest.Every,
	} {
		for name, fault := range map[string]claimtest.Fault{
			"request lost": {LoseRequest: true},
			"reply lost":   {LoseReply: true},
			"unavailable":  {LoseReply: true, Code: codes.Unavailable},
		} {
			for skip := range 3 {
				t.Run(fmt.Sprintf("%s/%s/%d", kind, name, skip), func(t *testing.T) {
					t.Parallel()
					testetcd.Sample(t)
					virtually(t, func(w *world) {
						const partitions = 6
						a := w.join(config("a", partitions))
						host := w.server.Host(w.T)
						fault := fault // of this test alone: others run beside it
						fault.On, fault.Skip, fault.Times = kind, skip, 1
						host.Inject(fault)
						a.host.Inject(fault)
						claims := claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl, Owner: "b"})
						var b *process
						for b == nil || b.err != nil { // Join returns what its caller must decide
							b = w.joinFrom(host, claims, config("b", partitions))
							time.Sleep(sec)
						}
						v := w.view()
						w.within(3*ttl, "balanced", func() bool { return balanced(v) && owned(v) })
						host.Inject(fault)
						a.host.Inject(fault)
						w.ok(b.Leave(w.Context()))
						w.within(2*ttl, "all are a's", func() bool { return counts(v)["a"] == partitions && len(v.Assignment().Members) == 1 })
						w.history(partitions)
						w.noOverlap()
					})
				})
			}
		}
	}
}

// An eviction whose reply is lost has an unknown outcome if it is refused when it is tried
// again. If only reads are refused then, it is known to be carried out.
func TestRefusedAfterUnknown(t *testing.T) {
	t.Parallel()
	for _, then := range []claimtest.Kind{claimtest.Other, claimtest.Verify} {
		t.Run(string(then), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				w.join(config("a", 2))
				host := w.server.Host(w.T)
				v := w.viewFrom(host)
				w.Cleanup(host.RemoveFaults)
				time.Sleep(sec)
				lost := host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true, Code: codes.Unavailable})
				refused := claimtest.Fault{On: then, Times: -1, Err: rpctypes.ErrGRPCPermissionDenied}
				if then == claimtest.Verify {
					refused.Skip = 1 // the read before
				}
				host.Inject(refused)
				err := v.Evict(w.Context(), "gone", "test", time.Hour)
				if n := lost.Hits(); n != 1 {
					t.Fatalf("%d replies were lost", n)
				}
				if then == claimtest.Verify {
					w.ok(err)
				} else {
					w.wantErr(err, etcdclaims.ErrUnknown)
					w.wantErr(err, etcdclaims.ErrPermissionDenied)
				}
				host.RemoveFaults()
				s, err := group.Read(w.Context(), claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: ttl}), "g")
				w.ok(err)
				if n := len(s.Members); n != 2 {
					t.Errorf("%d names, want that of the member and the evicted one", n)
				}
			})
		})
	}
}

// A member whose watches deliver nothing has an old view. It does no harm, and finds out
// in the end.
func TestTwoViews(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 24
		a := w.join(config("a", partitions))
		b := w.join(config("b", partitions))
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		deaf := a.host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, LoseReply: true})
		a.host.Break()
		c := w.join(config("c", partitions)) // a does not know
		w.within(30*sec, "balanced", func() bool { return balanced(v) && counts(v)["c"] == partitions/3 })
		b.die()
		w.within(2*ttl+5*sec, "owned", func() bool { return owned(v) && counts(v)["b"] == 0 })
		c.leave()
		w.within(30*sec, "all are a's", func() bool { return counts(v)["a"] == partitions })
		deaf.Remove()
		w.history(partitions)
		w.noOverlap()
	})
}

// etcd is away for longer than all claims last. All members join again.
func TestOutage(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 24
		for _, name := range []string{"a", "b", "c"} {
			w.join(config(name, partitions))
		}
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		w.server.Stop(w.T)
		time.Sleep(time.Minute)
		w.server.Restart(w.T)
		w.within(3*ttl, "balanced", func() bool { return balanced(v) && owned(v) })
		w.history(partitions)
		w.noOverlap()
	})
}
