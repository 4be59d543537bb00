package group_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/steps"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// keptBut0 fails if a partition other than 0 has another owner than p.
func (p *process) keptBut0(v *group.View) {
	p.w.Helper()
	for partition, o := range v.Assignment().Owners {
		if partition > 0 && o.Instance != p.claims.Instance() {
			p.w.Errorf("partition %d is owned by %+v", partition, o)
		}
	}
}

// A member that has taken itself off the list, since it cannot claim a partition, keeps those that it
// has: the claim for which another waits was given up, with or without the option. Requests of either
// can be slow.
func TestWithdrawnMemberKeepsItsPartitions(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		for _, slow := range []string{"", "b", "c"} {
			t.Run(slow, func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					const partitions = 8
					_, err := claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: ttl}).TryAcquire(w.Context(), "group/g/partition/00000", option.OwnKey{})
					w.ok(err)
					cfg := config("b", partitions)
					cfg.Weight, cfg.Suspectable = 1000, on // c gets nothing
					b, _ := w.joinDeaf(cfg)
					c := w.join(suspectable("c", partitions))
					switch slow {
					case "b":
						b.host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, DelayRequest: 5 * time.Millisecond})
					case "c":
						c.host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayRequest: 5 * time.Millisecond})
					}
					v := w.view()
					w.within(2*ttl, "b is off the list", func() bool { return !listed(v, "b") })
					time.Sleep(2 * sec)
					b.keptBut0(v)
					w.history(partitions)
				})
			})
		}
	}
}

// An operator who frees the claim of an entry costs the member no partition.
func TestForcedEntryCostsNoPartition(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 12
		all, v := w.watching(partitions, "a", "b", "c")
		before := v.Assignment().Owners
		operator := claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: ttl})
		w.ok(admin.ForceRelease(w.Context(), operator, "group/g/member/"+all["b"].claims.Instance(), "test"))
		time.Sleep(ttl)
		for partition, o := range v.Assignment().Owners {
			if o != before[partition] {
				w.Errorf("partition %d was owned by %+v, and is by %+v", partition, before[partition], o)
			}
		}
		all["b"].die() // it is watched over again
		w.within(sec, "the partitions of b are others'", func() bool { return without(v, "b") })
	})
}

// A member that is suspected again and again, since its watches deliver nothing, is off the list for
// longer and longer.
func TestSuspectedAgainAndAgain(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		all, v := w.watching(12, "a", "b", "c")
		all["b"].host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, Edit: func(reply any) { reply.(*pb.WatchResponse).Events = nil }})
		all["b"].host.Break()
		changes, was := 0, true
		for range 6000 {
			time.Sleep(10 * time.Millisecond)
			if is := listed(v, "b"); is != was {
				changes, was = changes+1, is
			}
		}
		if changes < 3 || changes > 12 {
			w.Errorf("the list has changed %d times in a minute", changes)
		}
		all["b"].host.RemoveFaults()
		all["b"].host.Break()
		w.within(16*ttl, "b is on the list and owns its share", func() bool { return balanced(v) && counts(v)["b"] == 4 })
	})
}

// A member that is off the list watches over nobody: who followed may have gone, and nothing is asked
// for again and again.
func TestMemberOffTheListIsQuiet(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		_, err := claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: ttl}).TryAcquire(w.Context(), "group/g/partition/00000", option.OwnKey{})
		w.ok(err)
		cfg := suspectable("b", 8)
		cfg.Weight = 1000
		host := w.server.Host(w.T)
		host.Inject(claimtest.Fault{On: steps.Enqueue, Key: "group/g/partition/00000", Times: -1, LoseRequest: true})
		b := w.joinFrom(host, claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl}), cfg)
		w.ok(b.err)
		c := w.join(suspectable("c", 8))
		v := w.view()
		w.within(3*ttl, "b is off the list", func() bool { return !listed(v, "b") })
		time.Sleep(sec)
		c.leave()
		time.Sleep(sec)
		before := len(host.Sent(claimtest.Every))
		time.Sleep(3 * sec)
		if n := len(host.Sent(claimtest.Every)) - before; n > 60 {
			w.Errorf("%d requests in 3 s", n)
		}
		w.ok(b.Err())
	})
}

// The partitions of a dead process go to the one that takes its name before the death is noticed.
func TestSuspectedNameIsUsedAgain(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{50, 300, 450, 2000} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				all, v := w.watching(12, "a", "b", "c")
				old := all["b"].claims.Instance()
				all["b"].die()
				time.Sleep(after * time.Millisecond)
				next := w.join(suspectable("b", 12))
				w.within(sec, "no partition is the dead one's", func() bool {
					for _, o := range v.Assignment().Owners {
						if o.Instance == old || o.Instance == "" {
							return false
						}
					}
					return true
				})
				w.within(5*sec, "b has its share", func() bool { return balanced(v) && counts(v)["b"] == 4 })
				w.ok(next.Err())
				w.history(12)
			})
		})
	}
}

// Requests that take a dead member's partitions from it are sent again.
func TestSuspectedMemberIsBuriedDespiteFaults(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]claimtest.Fault{
		"the first that free partitions": {On: steps.Notify, Times: 3, LoseRequest: true},
		"all that free partitions":       {On: steps.Notify, Times: -1, LoseRequest: true},
		"their replies":                  {On: steps.Notify, Times: -1, LoseReply: true},
		"the removal":                    {On: claimtest.Other, Times: -1, LoseRequest: true},
		"the reply to the removal":       {On: claimtest.Other, Times: -1, LoseReply: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				all, v := w.watching(12, "a", "b", "c")
				lost := all["a"].host.Inject(f)
				time.AfterFunc(2*sec, lost.Remove)
				all["b"].die()
				took := w.within(6500*time.Millisecond, "the partitions of b are others'", func() bool { return without(v, "b") })
				w.Logf("after %v, %d lost", took, lost.Hits())
				w.history(12)
			})
		})
	}
}

// A member that dies while it leaves is watched over for as long as it owns partitions.
func TestLeavingMemberDies(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		all, v := w.watching(12, "a", "b", "c")
		w.mu.Lock()
		w.ignore["b"] = true
		w.mu.Unlock()
		leaving, cancel := context.WithCancel(w.Context())
		defer cancel()
		go func() { _ = all["b"].Leave(leaving) }()
		time.Sleep(sec / 2)
		all["b"].die()
		w.within(sec, "the partitions of b are others'", func() bool { return without(v, "b") })
		w.history(12)
	})
}

// A member that leaves while it frees partitions of a dead one does not wait for that.
func TestLeaveWhileAnotherIsBuried(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		all, v := w.watching(12, "a", "b", "c")
		hold, began := make(chan struct{}), make(chan struct{})
		saw := sync.OnceFunc(func() { close(began) })
		all["a"].host.Inject(claimtest.Fault{On: steps.Notify, Times: -1, Hold: hold, Saw: func(any) { saw() }})
		all["b"].die()
		<-began
		begin := time.Now()
		w.ok(all["a"].Leave(w.Context()))
		if took := time.Since(begin); took > 3*sec {
			w.Errorf("it took %v", took)
		}
		close(hold)
		w.within(ttl+sec, "the partitions are others'", func() bool { return without(v, "a", "b") })
		w.history(12)
	})
}

// The one that has just taken a dead member's claim dies, too. The one that watches over both goes on.
func TestBurierDies(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		all, v := w.watching(12, "a", "b", "c", "d")
		began := make(chan struct{})
		saw := sync.OnceFunc(func() { close(began) })
		all["b"].host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, LoseRequest: true, Saw: func(any) { saw() }})
		all["c"].die()
		<-began
		all["b"].die()
		w.within(5*sec, "the partitions of b and c are others'", func() bool { return without(v, "b", "c") })
		w.history(12)
	})
}
