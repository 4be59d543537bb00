package group_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A member that has lost its entry, and joined again, while it found out that it is deaf
// stays on the list.
func TestJoinsAgainWhileItWithdraws(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		operator := claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: ttl})
		held, err := operator.TryAcquire(w.Context(), "group/g/partition/00000", option.OwnKey{})
		w.ok(err)
		b, host := w.joinDeaf(config("b", 1))
		v := w.view()
		reads := make(chan struct{}, 1)
		time.Sleep(11 * sec)
		host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, DelayReply: 1200 * time.Millisecond, Saw: func(req any) {
			if strings.Contains(fmt.Sprint(req), "/etcdclaims/wait/") {
				select {
				case reads <- struct{}{}:
				default:
				}
			}
		}})
		<-reads // the member reads the lines, which takes 1.2 s
		w.ok(admin.ForceRelease(w.Context(), operator, "group/g/member/"+b.claims.Instance(), "test"))
		time.Sleep(5 * sec)
		host.RemoveFaults()
		w.ok(held.Release(w.Context()))
		w.within(4*ttl, "b is on the list and owns the partition", func() bool { return listed(v, "b") && counts(v)["b"] == 1 })
	})
}

// A member that waits in line while etcd is away, or while it is cut off, is not deaf when
// that is over.
func TestOutageDoesNotMakeDeaf(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		for outage := 9 * sec; outage < 40*sec; outage += 1370 * time.Millisecond {
			t.Run(fmt.Sprintf("cut=%v/%v", cut, outage), func(t *testing.T) {
				t.Parallel()
				testetcd.Third(t)
				virtually(t, func(w *world) {
					core, logs := observer.New(zap.ErrorLevel)
					cfg := config("a", 2)
					cfg.Cooldown = 3 * time.Minute
					w.join(cfg)
					v := w.view()
					w.within(2*sec, "all are a's", func() bool { return counts(v)["a"] == 2 })
					time.Sleep(cfg.Cooldown) // a was not early
					cfg.Name, cfg.Logger = "b", zap.New(core)
					b := w.join(cfg)
					time.Sleep(5 * sec)
					if cut {
						b.host.Cut()
						time.Sleep(outage)
						b.host.Heal()
					} else {
						w.server.Stop(w.T)
						time.Sleep(outage)
						w.server.Restart(w.T)
					}
					time.Sleep(4 * ttl)
					for _, e := range logs.All() {
						w.Errorf("%s %v", e.Message, e.ContextMap())
					}
					if !listed(v, "a") || !listed(v, "b") {
						w.Errorf("members: %+v", v.Assignment().Members)
					}
				})
			})
		}
	}
}

// withdrawn makes b a member that owns all partitions but one, and has just taken itself off the
// list because it cannot wait for that one.
func (w *world) withdrawn(partitions int) (b *process, v *group.View) {
	w.Helper()
	_, err := claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: ttl}).TryAcquire(w.Context(), "group/g/partition/00000", option.OwnKey{})
	w.ok(err)
	b, _ = w.joinDeaf(config("b", partitions))
	v = w.view()
	w.within(2*ttl, "b is off the list", func() bool { return !listed(v, "b") })
	if n := counts(v)["b"]; n != partitions-1 {
		w.Fatalf("b owns %d partitions, want %d", n, partitions-1)
	}
	return b, v
}

// A process that joins with the name of a member that has taken itself off the list gets
// its partitions at once.
func TestReplacesWithdrawnMember(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 8
		b, v := w.withdrawn(partitions)
		again := w.join(config("b", partitions))
		w.within(5*sec, "the new b owns the partitions", func() bool {
			n := 0
			for _, o := range v.Assignment().Owners {
				if o.Instance == again.claims.Instance() {
					n++
				}
			}
			return n == partitions-1
		})
		w.wantErr(b.Err(), group.ErrReplaced)
		w.noOverlap()
	})
}

// A member that has taken itself off the list, and is evicted, gives up its partitions at once.
// If it does not hear of the eviction, they are taken from it.
func TestEvictsWithdrawnMember(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		for _, hears := range []bool{true, false} {
			t.Run(fmt.Sprintf("late view=%v, it hears=%v", late, hears), func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					const partitions = 8
					b, v := w.withdrawn(partitions)
					w.join(config("a", partitions))
					if !hears {
						b.deafen()
					}
					if late {
						v = w.view() // as claimctl opens one
					}
					w.ok(v.Evict(w.Context(), "b", "deaf", time.Hour))
					w.within(sec, "a owns the partitions", func() bool { return counts(v)["a"] == partitions-1 })
					if hears {
						w.wantEvicted(b.Err())
						w.noOverlap()
					}
					w.history(partitions)
				})
			})
		}
	}
}

// deafen makes a process hear nothing of the group. It still renews its claims.
func (p *process) deafen() {
	p.host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, LoseReply: true})
	p.host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, LoseReply: true}) // its reads of the list
	p.host.Break()
}

// A process that was replaced, and has not heard of it, loses its partitions when its name is
// evicted, also through a view that was opened afterwards.
func TestEvictsReplacedProcess(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 6
		w.join(config("a", partitions))
		b := w.join(config("b", partitions))
		v := w.view()
		w.within(10*sec, "balanced", func() bool { return balanced(v) })
		b.deafen()
		again := w.join(config("b", partitions))
		time.Sleep(10 * sec)
		late := w.view()
		if n := counts(late)["b"]; n != partitions/2 {
			t.Errorf("b owns %d partitions in a view that was opened later", n)
		}
		w.ok(late.Evict(w.Context(), "b", "test", time.Hour))
		w.within(sec, "a owns the partitions", func() bool { return counts(late)["a"] == partitions })
		w.wantEvicted(again.Err())
		w.history(partitions)
	})
}

// A view that has not heard of a member yet takes the partitions of the member all the same.
func TestEvictsThroughOldView(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const partitions = 6
		w.join(config("a", partitions))
		host := w.server.Host(w.T)
		v := w.viewFrom(host)
		w.within(5*sec, "all are a's", func() bool { return counts(v)["a"] == partitions })
		time.Sleep(5 * sec)
		deaf := host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, LoseReply: true})
		host.Break()
		b := w.join(config("b", partitions))
		w.within(5*sec, "b has partitions", func() bool { return counts(b.View())["b"] == partitions/2 })
		b.deafen()
		if listed(v, "b") {
			t.Fatal("the view has heard of b")
		}
		w.ok(v.Evict(w.Context(), "b", "test", time.Hour))
		deaf.Remove()
		now := w.view()
		w.within(sec, "a owns the partitions", func() bool { return counts(now)["a"] == partitions })
		w.history(partitions)
	})
}

// A process leaves nothing behind once it has left. Remove removes what one has left that is
// off the list, and does not end its lease.
func TestProcessIsForgotten(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		processes := func() (n int) {
			resp, err := w.server.Admin().Get(w.Context(), "/etcdclaims/group/", prefixKeys...)
			w.ok(err)
			for _, kv := range resp.Kvs {
				if strings.Contains(string(kv.Key), "/process/") {
					n++
				}
			}
			return n
		}
		a := w.join(config("a", 2))
		kept, err := a.claims.TryAcquire(w.Context(), "other")
		w.ok(err)
		if n := processes(); n != 1 {
			t.Errorf("%d processes", n)
		}
		root := w.root()
		value, err := w.server.Admin().Get(w.Context(), root+"process/"+a.claims.Instance())
		w.ok(err)
		w.ok(a.Leave(w.Context()))
		if n := processes(); n != 0 {
			t.Errorf("%d processes have left nothing but a key", n)
		}
		kv := value.Kvs[0]
		_, err = w.server.Admin().Put(w.Context(), string(kv.Key), string(kv.Value), clientv3.WithLease(clientv3.LeaseID(kv.Lease)))
		w.ok(err)
		w.ok(group.Remove(w.Context(), a.claims, "g"))
		if n := processes(); n != 0 {
			t.Errorf("%d processes", n)
		}
		time.Sleep(ttl)
		w.ok(kept.Check())
	})
}
