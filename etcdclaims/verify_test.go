package etcdclaims_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Claims are verified in time, although etcd is far away and they take 125 requests: as the
// 8,192 claims of a lease do where etcd allows 128 operations in a transaction.
func TestVerifyManyClaimsFarAway(t *testing.T) {
	t.Parallel()
	testetcd.SkipRace(t)
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		claims := claimMany(t, c, numbered("%d", 2000))
		host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, DelayReply: 150 * time.Millisecond})
		time.Sleep(time.Minute)
		for _, cl := range claims {
			if err := cl.Check(); err != nil || cl.Context().Err() != nil {
				t.Fatalf("%v, %v", err, context.Cause(cl.Context()))
			}
		}
		if n := host.MostInFlight(claimtest.Verify); n < 2 || n > 8 {
			t.Errorf("%d verifications in flight", n)
		}
		w.Server.Delete(t, w.Own("1711"))
		time.Sleep(16 * sec)
		for i, cl := range claims {
			if lost := cl.Err() != nil; lost != (i == 1711) {
				t.Errorf("claim %d: %v", i, cl.Err())
			}
		}
		host.RemoveFaults()
	}, testclaims.MaxTxnOps(32))
}

// Thousands of callers of one client that begin to wait at the same time neither create all
// their watches at once, which would look like a stream that hangs, nor keep a watch each.
// All get their keys, whether they watch or not.
func TestWatchesOfManyWaiters(t *testing.T) {
	t.Parallel()
	const lines = 40
	each := 28
	if testing.Short() {
		each = 7 // still several times as many as may begin a watch at a time
	}
	for _, dies := range []bool{false, true} {
		virtualCase(t, map[bool]string{false: "released", true: "dies"}[dies], func(t *testing.T, w *world) {
			ctx := context.Background()
			a, ahost := w.client(etcdclaims.Config{TTL: 15 * sec})
			b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			held := claimMany(t, a, numbered("%d", lines))
			var created, pending, most atomic.Int64
			host.Inject(claimtest.Fault{
				On: claimtest.Watch, Times: -1, DelayReply: time.Millisecond,
				Saw: func(req any) {
					if r, ok := req.(*pb.WatchRequest); ok && r.GetCreateRequest() != nil {
						created.Add(1)
						most.Store(max(most.Load(), pending.Add(1)))
					}
				},
				Edit: func(reply any) {
					if r, ok := reply.(*pb.WatchResponse); ok && r.Created {
						pending.Add(-1)
					}
				},
			})
			tryClaim(t, b, "warm")
			var all sync.WaitGroup
			var had atomic.Int64
			for i := range lines * each {
				all.Go(func() {
					cl, err := b.Acquire(ctx, numbered("%d", lines)[i%lines])
					if err != nil {
						t.Error(err)
						return
					}
					had.Add(1)
					if err := cl.Release(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(4 * sec)
			if n := created.Load(); n < lines || n > 1+lines+1024 {
				t.Errorf("%d watches", n)
			}
			if n := most.Load(); n > 64 {
				t.Errorf("%d watches created at a time", n)
			}
			if dies {
				ahost.Kill()
				time.Sleep(17 * sec)
			} else {
				for _, cl := range held {
					release(t, cl)
				}
				time.Sleep(2 * sec)
			}
			if n := had.Load(); n != int64(lines*each) {
				t.Errorf("%d of %d had the key", n, lines*each)
			}
			all.Wait()
			host.RemoveFaults()
		})
	}
}
