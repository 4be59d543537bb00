package group_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/testclaims"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// unused returns how many leases longer than a client's have no key.
func (w *world) unused() (n int) {
	w.Helper()
	admin := w.server.Admin()
	leases, err := admin.Leases(w.Context())
	w.ok(err)
	for _, l := range leases.Leases {
		resp, err := admin.TimeToLive(w.Context(), l.ID, clientv3.WithAttachedKeys())
		w.ok(err)
		if resp.GrantedTTL > int64(ttl/sec) && len(resp.Keys) == 0 {
			n++
		}
	}
	return n
}

// A lease of a reservation or an eviction ends with its key.
func TestNoLeaseWithoutItsKey(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		cfg := config("a", 4)
		cfg.Away = time.Hour
		none := func(after string) {
			w.Helper()
			w.within(sec, "no lease without a key after "+after, func() bool { return w.unused() == 0 })
		}
		w.join(cfg).leave()
		a := w.join(cfg)
		none("a return")
		v := w.view()
		a.leave()
		w.ok(v.Evict(w.Context(), "a", "while it is away", time.Hour))
		none("an eviction of a member that is away")
		w.ok(v.Evict(w.Context(), "a", "again", 2*time.Hour))
		none("another eviction")
		w.ok(v.Readmit(w.Context(), "a"))
		none("a readmission")
		w.join(cfg).leave()
		w.ok(v.Evict(w.Context(), "b", "by mistake", time.Hour))
		v.Close()
		w.ok(group.Remove(w.Context(), claimtest.NewClient(w.T, w.server, etcdclaims.Config{}), "g"))
		none("a removal")
	})
}

// An eviction whose reply was lost is carried out twice, and holds.
func TestEvictTwice(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		w.join(config("a", 4))
		host := w.server.Host(w.T)
		v := w.viewFrom(host)
		lost := host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true})
		w.ok(v.Evict(w.Context(), "b", "test", time.Hour))
		if lost.Hits() != 1 {
			w.Errorf("%d replies were lost", lost.Hits())
		}
		time.Sleep(sec)
		w.wantEvicted(w.tryJoin(config("b", 4)).err)
	})
}

// An eviction that is refused, because a later version has evicted the name, leaves no
// lease.
func TestRefusedEvictionLeavesNoLease(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		w.join(config("a", 1))
		v := w.view()
		w.put(w.root()+"evicted/b", `{"v":2}`)
		if err := v.Evict(w.Context(), "b", "test", 365*24*time.Hour); err == nil {
			w.Error("the eviction of a later version was replaced")
		}
		if n := w.unused(); n != 0 {
			w.Errorf("%d leases have no key", n)
		}
	})
}

// So does one that fails for another reason, and has certainly changed nothing.
func TestFailedEvictionLeavesNoLease(t *testing.T) {
	t.Parallel()
	denied := rpctypes.ErrGRPCPermissionDenied
	for name, c := range map[string]struct {
		fault claimtest.Fault
		want  error
	}{
		"no permission to read":  {claimtest.Fault{On: claimtest.Verify, Err: denied}, rpctypes.ErrPermissionDenied},
		"no permission to write": {claimtest.Fault{On: claimtest.Other, Err: denied}, rpctypes.ErrPermissionDenied},
		"the caller gives up":    {claimtest.Fault{On: claimtest.Verify, LoseRequest: true}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				w.join(config("a", 1))
				host := w.server.Host(w.T)
				v := w.viewFrom(host)
				c.fault.Times = -1
				failing := host.Inject(c.fault)
				ctx, cancel := context.WithTimeout(w.Context(), 2*sec)
				defer cancel()
				err := v.Evict(ctx, "a", "test", 365*24*time.Hour)
				w.wantErr(err, c.want)
				if errors.Is(err, etcdclaims.ErrUnknown) || failing.Hits() == 0 {
					w.Errorf("got %v after %d faults", err, failing.Hits())
				}
				if n := w.unused(); n != 0 {
					w.Errorf("%d leases have no key", n)
				}
			})
		})
	}
}

// A member leaves with Away when its entry is lost already. Nothing is reserved then, and
// no lease stays.
func TestAwayWithoutEntryLeavesNoLease(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		cfg := config("a", 8)
		cfg.Away = time.Hour
		a := w.join(cfg)
		v := w.view()
		held := a.host.Inject(claimtest.Fault{On: claimtest.Acquire, Times: -1, LoseRequest: true})
		own, err := w.server.Admin().Get(w.Context(), testclaims.Key("", "group/g/member/"+a.claims.Instance()))
		w.ok(err)
		_, err = w.server.Admin().Revoke(w.Context(), clientv3.LeaseID(own.Kvs[0].Lease)) // as after an outage
		w.ok(err)
		w.within(sec, "a is off the list", func() bool { return !listed(v, "a") })
		time.AfterFunc(sec, held.Remove)
		w.ok(a.Leave(w.Context()))
		if n := w.unused(); n != 0 || listed(v, "a") {
			w.Errorf("%d leases have no key; on the list: %v", n, listed(v, "a"))
		}
	})
}

// The reply to the request that reserves the partitions of a member is lost. They are reserved.
func TestAwayWithLostReply(t *testing.T) {
	t.Parallel()
	for skip := range 3 {
		t.Run(fmt.Sprint(skip), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				cfg := config("a", 8)
				cfg.Away = time.Hour
				a := w.join(cfg)
				v := w.view()
				w.within(2*sec, "all are a's", func() bool { return counts(v)["a"] == 8 })
				a.host.Inject(claimtest.Fault{On: claimtest.Other, Skip: skip, LoseReply: true})
				w.ok(a.Leave(w.Context()))
				time.Sleep(sec)
				if n := len(reserved(v, "a")); n != 8 || w.unused() != 0 {
					w.Errorf("%d partitions are reserved, %d leases have no key", n, w.unused())
				}
			})
		})
	}
}
