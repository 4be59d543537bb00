package group_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/option"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// right reports whether the members are on the list, and each partition has the owner of the plan,
// whose handler was called.
func (w *world) right(v *group.View, members int) bool {
	a := v.Assignment()
	for partition, o := range a.Owners {
		if !w.wasServed(partition, o.Token.Fence) {
			return false
		}
	}
	return len(a.Members) == members && owned(v) && balanced(v)
}

// Whatever is done to a partition's claim from outside, each partition has one handler again soon after.
func TestClaimsEndedFromOutside(t *testing.T) {
	t.Parallel()
	const partitions, key = 12, "group/g/partition/00005"
	for name, harm := range map[string]func(w *world, ps []*process, operator *etcdclaims.Client){
		"forced": func(w *world, _ []*process, operator *etcdclaims.Client) {
			w.ok(admin.ForceRelease(w.Context(), operator, key, "test"))
		},
		"claimed by another": func(w *world, _ []*process, operator *etcdclaims.Client) {
			var claim *etcdclaims.Claim
			// The member may be sooner, and would keep the key from a caller in line for good.
			w.within(ttl, "another has the key", func() (claimed bool) {
				w.ok(admin.ForceRelease(w.Context(), operator, key, "test"))
				var err error
				claim, err = operator.TryAcquire(w.Context(), key, option.OwnKey{})
				if !errors.Is(err, etcdclaims.ErrHeld) {
					w.ok(err)
				}
				return err == nil
			})
			time.Sleep(2 * ttl)
			w.ok(claim.Release(w.Context()))
		},
		"epoch raised": func(w *world, _ []*process, _ *etcdclaims.Client) { w.server.RaiseEpoch(w.T, "") },
		"all leases revoked": func(w *world, _ []*process, _ *etcdclaims.Client) {
			resp, err := w.server.Admin().Leases(w.Context())
			w.ok(err)
			for _, l := range resp.Leases {
				_, err := w.server.Admin().Revoke(w.Context(), clientv3.LeaseID(l.ID))
				w.ok(err)
			}
		},
		"compaction while all are cut off": func(w *world, ps []*process, _ *etcdclaims.Client) {
			for _, p := range ps {
				p.host.Cut()
			}
			time.Sleep(2 * sec)
			w.server.Compact(w.T)
			for _, p := range ps {
				p.host.Heal()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				var ps []*process
				for i := range 3 {
					ps = append(ps, w.join(config(fmt.Sprint("m", i), partitions)))
				}
				v, operator := w.view(), claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: ttl})
				w.within(20*sec, "each partition has a handler", func() bool { return w.right(v, len(ps)) })
				harm(w, ps, operator)
				time.Sleep(10 * time.Millisecond)
				w.within(3*ttl, "each partition has a handler again", func() bool { return w.right(v, len(ps)) })
				if name != "all leases revoked" { // which frees partitions before their members can know
					w.noOverlap()
				}
			})
		})
	}
}

// Members whose machines sleep and whose clocks step have their partitions again, and then no partition moves.
func TestSleepAndClocksMoveNothingAfterwards(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions, members = 20, 4
		var ps []*process
		for i := range members {
			cfg := config(fmt.Sprint("m", i), partitions)
			cfg.Cooldown, cfg.MaxMoves = time.Duration(1+i)*sec, 4*(i+1)
			ps = append(ps, w.join(cfg))
		}
		v := w.view()
		w.within(4*time.Minute, "balanced", func() bool { return w.right(v, members) })
		for i, p := range ps {
			if i%2 == 0 {
				p.host.Suspend(time.Minute)
			} else {
				p.host.StepClock(time.Duration(i-2) * time.Hour)
			}
			time.Sleep(ttl)
		}
		w.within(4*time.Minute, "balanced again", func() bool { return w.right(v, members) })
		before := v.Assignment().Owners
		time.Sleep(2 * time.Minute)
		for partition, o := range v.Assignment().Owners {
			if o.Token != before[partition].Token {
				w.Errorf("partition %d moved from %s to %s at rest", partition, before[partition].Member, o.Member)
			}
		}
		for _, p := range ps {
			w.ok(p.Err())
		}
		w.history(partitions)
	})
}
