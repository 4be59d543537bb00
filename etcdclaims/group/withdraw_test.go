package group_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A member that has lost its entry, and joined again, while it found out that it is deaf
// stays on the list.
func TestJoinsAgainWhileItWithdraws(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		admin := claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: ttl})
		held, err := admin.TryAcquire(w.Context(), "group/g/slot/00000")
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
		w.ok(admin.ForceRelease(w.Context(), "group/g/member/"+b.claims.Instance(), "test"))
		time.Sleep(5 * sec)
		host.RemoveFaults()
		w.ok(held.Release(w.Context()))
		w.within(4*ttl, "b is on the list and owns the slot", func() bool { return listed(v, "b") && counts(v)["b"] == 1 })
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
				virtually(t, func(w *world) {
					core, logs := observer.New(zap.ErrorLevel)
					cfg := config("a", 2)
					cfg.Cooldown = time.Hour
					w.join(cfg)
					v := w.view()
					w.within(2*sec, "all are a's", func() bool { return counts(v)["a"] == 2 })
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

// withdrawn makes b a member that owns all slots but one, and has just taken itself off the
// list because it cannot wait for that one.
func (w *world) withdrawn(slots int) (b *process, v *group.View) {
	w.Helper()
	_, err := claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: ttl}).TryAcquire(w.Context(), "group/g/slot/00000")
	w.ok(err)
	b, _ = w.joinDeaf(config("b", slots))
	v = w.view()
	w.within(2*ttl, "b is off the list", func() bool { return !listed(v, "b") })
	if n := counts(v)["b"]; n != slots-1 {
		w.Fatalf("b owns %d slots, want %d", n, slots-1)
	}
	return b, v
}

// A process that joins with the name of a member that has taken itself off the list gets
// its slots at once.
func TestReplacesWithdrawnMember(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const slots = 8
		b, v := w.withdrawn(slots)
		again := w.join(config("b", slots))
		w.within(5*sec, "the new b owns the slots", func() bool {
			n := 0
			for _, o := range v.Assignment().Owners {
				if o.Instance == again.claims.Instance() {
					n++
				}
			}
			return n == slots-1
		})
		w.wantErr(b.Err(), group.ErrReplaced)
		w.noOverlap()
	})
}

// A member that has taken itself off the list, and is evicted, gives up its slots at once.
// If it does not hear of the eviction, they are taken from it.
func TestEvictsWithdrawnMember(t *testing.T) {
	t.Parallel()
	for _, hears := range []bool{true, false} {
		t.Run(fmt.Sprintf("it hears=%v", hears), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				const slots = 8
				b, v := w.withdrawn(slots)
				w.join(config("a", slots))
				if !hears {
					b.host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, LoseReply: true})
					b.host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, LoseReply: true}) // its reads of the list
				}
				w.ok(v.Evict(w.Context(), "b", "deaf", time.Hour))
				w.within(sec, "a owns the slots", func() bool { return counts(v)["a"] == slots-1 })
				if hears {
					w.wantErr(b.Err(), group.ErrEvicted)
					w.noOverlap()
				}
				w.history(slots)
			})
		})
	}
}
