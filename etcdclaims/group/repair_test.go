package group_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/steps"
)

func untilEnd(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
	<-ctx.Done()
	return nil
}

// joinDeaf makes a process a member whose requests for partitions are lost.
func (w *world) joinDeaf(cfg group.Config) (*process, *claimtest.Host) {
	w.Helper()
	host := w.server.Host(w.T)
	host.Inject(claimtest.Fault{On: steps.Enqueue, Times: -1, LoseRequest: true})
	p := w.joinFrom(host, claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl, Owner: cfg.Name}), cfg)
	w.ok(p.err)
	return p, host
}

// joinUnder makes a the owner of all 12 partitions, and lets b try for two seconds to join while
// the fault hits its requests. alone reports whether a is the only member again.
func (w *world) joinUnder(fault claimtest.Fault) (injected *claimtest.Injection, alone func() bool) {
	w.Helper()
	const partitions = 12
	w.join(config("a", partitions))
	v := w.view()
	host := w.server.Host(w.T)
	claims := claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl, Owner: "b"})
	_, err := claims.TryAcquire(w.Context(), "unrelated") // keeps the lease alive on which the entry lies
	w.ok(err)
	injected = host.Inject(fault)
	ctx, cancel := context.WithTimeout(w.Context(), 2*sec)
	defer cancel()
	b, err := group.Join(ctx, claims, config("b", partitions), untilEnd)
	if err == nil { // it needs fewer requests than the fault skips
		w.ok(b.Leave(w.Context()))
	}
	return injected, func() bool { return len(v.Assignment().Members) == 1 && counts(v)["a"] == partitions }
}

// The replies to a Join are lost until its ctx ends, and for a second more.
func TestFailedJoinLeavesNoEntry(t *testing.T) {
	t.Parallel()
	for skip := range 4 {
		t.Run(fmt.Sprint(skip), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				lost, alone := w.joinUnder(claimtest.Fault{On: claimtest.Other, Skip: skip, Times: -1, LoseReply: true})
				time.AfterFunc(sec, lost.Remove)
				w.within(3*ttl, "only a is a member", alone)
			})
		})
	}
}

// Requests of a Join arrive when it has failed.
func TestLateEntry(t *testing.T) {
	t.Parallel()
	for skip := range 4 {
		t.Run(fmt.Sprint(skip), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				late := make(chan struct{})
				_, alone := w.joinUnder(claimtest.Fault{On: claimtest.Other, Skip: skip, Hold: late})
				time.Sleep(3 * ttl) // until it has given up
				close(late)
				time.Sleep(sec)
				if !alone() {
					w.Error("the late request has made b a member")
				}
			})
		})
	}
}

// A member leaves while the reply to its request to join again is lost.
func TestLeaveWhileJoiningAgain(t *testing.T) {
	t.Parallel()
	for skip := range 4 {
		t.Run(fmt.Sprint(skip), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				const partitions = 12
				w.join(config("a", partitions))
				b := w.join(config("b", partitions))
				v := w.view()
				w.within(20*sec, "balanced", func() bool { return balanced(v) })
				_, err := b.claims.TryAcquire(w.Context(), "unrelated")
				w.ok(err)
				b.host.Inject(claimtest.Fault{On: claimtest.Other, Skip: skip, Times: 1, LoseReply: true})
				w.ok(admin.ForceRelease(w.Context(), b.claims, "group/g/member/"+b.claims.Instance(), "test"))
				time.Sleep(2 * sec)
				w.ok(b.Leave(w.Context()))
				w.within(3*ttl, "all are a's", func() bool { return len(v.Assignment().Members) == 1 && counts(v)["a"] == partitions })
			})
		})
	}
}

// A member renews its entry, but its requests for partitions are lost. The others take over
// what it cannot claim. When it can, it gets its share.
func TestDeafMember(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 30
		a := w.join(config("a", partitions))
		w.join(config("b", partitions))
		_, host := w.joinDeaf(config("c", partitions))
		v := w.view()
		time.Sleep(12 * sec)
		a.die()
		w.within(2*ttl, "a is gone", func() bool { return !owned(v) })
		w.within(4*ttl, "all partitions have owners", func() bool { return owned(v) && counts(v)["a"] == 0 })
		host.RemoveFaults()
		w.within(20*ttl, "balanced", func() bool { return counts(v)["c"] == partitions/2 && balanced(v) })
		w.history(partitions)
		w.noOverlap()
	})
}

// A member that never stands in line does not keep the room of the budget.
func TestDeafMemberInBudget(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 9
		budget := func(name string) group.Config {
			cfg := config(name, partitions)
			cfg.MaxMoves = 2
			return cfg
		}
		w.join(budget("z"))
		time.Sleep(11 * sec)
		w.joinDeaf(budget("b"))
		w.join(budget("c"))
		v := w.view()
		w.within(10*time.Minute, "c has a share", func() bool { return counts(v)["c"] >= partitions/3 })
	})
}

// The list changes more than once a second for long.
func TestBudgetWhileListChanges(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 8
		budget := func(name string) group.Config {
			cfg := config(name, partitions)
			cfg.MaxMoves = 4
			return cfg
		}
		w.join(budget("a"))
		time.Sleep(11 * sec)
		v := w.view()
		over := make(chan struct{})
		w.Cleanup(func() { <-over })
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		go func() {
			defer close(over)
			for ctx.Err() == nil {
				_ = v.Evict(ctx, "nobody", "test", time.Hour)
				time.Sleep(300 * time.Millisecond)
				_ = v.Readmit(ctx, "nobody")
				time.Sleep(300 * time.Millisecond)
			}
		}()
		w.join(budget("b"))
		w.within(time.Minute, "b has its share", func() bool { return counts(v)["b"] == partitions/2 })
	})
}

// A handler takes longer than the default TTL, within the drain of its client.
func TestLeaveWaitsForLongDrain(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		claims := claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: 120 * sec, Drain: 25 * sec})
		var running atomic.Int64
		m, err := group.Join(w.Context(), claims, config("a", 4), func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
			running.Add(1)
			defer running.Add(-1)
			<-ctx.Done()
			time.Sleep(22 * sec)
			return nil
		})
		w.ok(err)
		w.within(10*sec, "handlers run", func() bool { return running.Load() == 4 })
		w.ok(m.Leave(w.Context()))
		if n := running.Load(); n > 0 {
			w.Errorf("Leave returned while %d handlers run within their drain", n)
		}
	})
}

// Leave's ctx has ended, and the member waits for an answer of etcd.
func TestLeaveAtOnceWithoutEtcd(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 8
		host := w.server.Host(w.T)
		claims := claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl})
		var running atomic.Int64
		m, err := group.Join(w.Context(), claims, config("b", partitions), func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
			running.Add(1)
			defer running.Add(-1)
			<-ctx.Done()
			return nil
		})
		w.ok(err)
		w.within(10*sec, "handlers run", func() bool { return running.Load() == partitions })
		w.joinDeaf(config("c", partitions)) // so that b reads the lines again and again
		time.Sleep(5 * sec)
		host.Cut()
		time.Sleep(1500 * time.Millisecond)
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		w.wantErr(m.Leave(ctx), context.Canceled)
		w.within(20*time.Millisecond, "handlers return", func() bool { return running.Load() == 0 })
		host.Heal()
		<-m.Done()
	})
}

// The request that takes a leaving member off the list is lost.
func TestSlowDeparture(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 12
		w.join(config("a", partitions))
		b := w.join(config("b", partitions))
		v := w.view()
		w.within(20*sec, "balanced", func() bool { return balanced(v) })
		_, before := moves(w.history(partitions))
		b.host.Inject(claimtest.Fault{On: claimtest.Other, LoseRequest: true})
		w.ok(b.Leave(w.Context()))
		w.within(5*sec, "all are a's", func() bool { return counts(v)["a"] == partitions })
		if _, free := moves(w.history(partitions)); free > before {
			w.Errorf("%d partitions were free while they moved", free-before)
		}
	})
}

// The member with one partition more than the others is restarted.
func TestRestartMovesNothing(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("dies=%t", dies), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				const partitions = 10
				processes := make(map[string]*process)
				for _, name := range []string{"b", "c", "a"} {
					processes[name] = w.join(config(name, partitions))
					time.Sleep(sec)
				}
				v := w.view()
				w.within(20*sec, "balanced", func() bool { return balanced(v) })
				before := v.Assignment().Owners
				for name, n := range counts(v) {
					if n == 4 {
						if dies {
							processes[name].die()
						}
						w.join(config(name, partitions))
					}
				}
				time.Sleep(2 * ttl)
				for partition, o := range v.Assignment().Owners {
					if o.Member != before[partition].Member {
						w.Errorf("partition %d moved from %s to %q", partition, before[partition].Member, o.Member)
					}
				}
			})
		})
	}
}
