package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
)

// inLine lets clients of their own join the line for the key one after the
// other.
func (w *world) inLine(key string, n int) (cs []*etcdclaims.Client, hosts []*claimtest.Host, done []<-chan claimed, leave []context.CancelFunc) {
	w.Helper()
	for range n {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		ctx, cancel := context.WithCancel(context.Background())
		w.Cleanup(cancel)
		cs, hosts, leave = append(cs, c), append(hosts, host), append(leave, cancel)
		done = append(done, acquiring(ctx, c, key))
		time.Sleep(10 * time.Millisecond)
	}
	return cs, hosts, done, leave
}

// A hand-over to each of those in line takes one request of whoever releases:
// who comes next is told along.
func TestLineTravelsAlong(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		held := tryClaim(t, a, "k")
		cs, _, done, _ := w.inLine("k", 6)
		release(t, held)
		for i := range cs {
			cl := w.within(100*time.Millisecond, done[i])
			before := cs[i].Stats().Requests
			release(t, cl)
			if n := cs[i].Stats().Requests - before; n != 1 {
				t.Errorf("waiter %d released with %d requests", i, n)
			}
		}
		if n := w.places() + w.notices(); n != 0 {
			t.Errorf("%d places in line and notices are left: %v", n, w.All())
		}
		w.Available("k", a)
		w.CloseClean(append(cs, a)...)
	})
}

// Of the line that travels along, some leave or die before their turn comes.
func TestToldOfWhoLeft(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string][]int{"next": {1}, "last": {4}, "two": {1, 2}, "all but one": {1, 2, 3}, "all": {1, 2, 3, 4}} {
		for _, die := range []bool{false, true} {
			virtualCase(t, fmt.Sprintf("%s, die %v", name, die), func(t *testing.T, w *world) {
				a := w.peer()
				held := tryClaim(t, a, "k")
				cs, hosts, done, leave := w.inLine("k", 5)
				release(t, held)
				cl := w.within(100*time.Millisecond, done[0]) // and was told of the others
				for _, i := range gone {
					if die {
						hosts[i].Kill()
					}
					leave[i]()
				}
				time.Sleep(20 * sec)
				w.Ours(cl)
				last := cl.Fence()
				for i := 1; i < 5; i++ {
					if slices.Contains(gone, i) {
						continue
					}
					release(t, cl)
					cl = w.within(100*time.Millisecond, done[i])
					w.Ours(cl)
					if cl.Fence() <= last {
						t.Errorf("fence %d after %d", cl.Fence(), last)
					}
					last = cl.Fence()
				}
				release(t, cl)
				if n := w.places() + w.notices(); n != 0 {
					t.Errorf("%d places in line and notices are left: %v", n, w.All())
				}
				w.Available("k", a)
				if !die {
					w.CloseClean(append(cs, a)...)
				}
			})
		}
	}
}

// Who knows whom to hand the key to, and dies before it does, is followed by
// just that one.
func TestReleaserDiesBeforeItHandsOver(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"request", "reply"} {
		virtualCase(t, lost, func(t *testing.T, w *world) {
			a := w.peer()
			held := tryClaim(t, a, "k")
			_, hosts, done, _ := w.inLine("k", 3)
			release(t, held)
			cl := w.within(100*time.Millisecond, done[0])
			hosts[0].Inject(claimtest.Fault{On: steps.HandOver, Times: -1, LoseRequest: lost == "request", LoseReply: lost == "reply"})
			released := make(chan struct{})
			go func() { defer close(released); _ = cl.Release(context.Background()) }()
			defer func() { <-released }()
			time.Sleep(10 * time.Millisecond)
			hosts[0].Kill()
			begin := time.Now()
			next := w.within(16*sec, done[1])
			if d := time.Since(begin); lost == "reply" && d > 100*time.Millisecond {
				t.Errorf("handed over after %v", d)
			}
			w.Ours(next)
			release(t, next)
			w.Ours(w.within(sec, done[2]))
		})
	}
}

// A waiter that is handed the key after it gave up leaves it to the next, though
// what it leaves the line with is slow.
func TestHandedOverAfterGivingUp(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		held := tryClaim(t, a, "k")
		cs, hosts, done, leave := w.inLine("k", 2)
		time.Sleep(3 * sec)
		slow := hosts[0].Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayRequest: sec})
		leave[0]()
		if r := <-done[0]; !errors.Is(r.err, context.Canceled) {
			t.Fatalf("gave up: %v", r.err)
		}
		release(t, held)
		if !strings.Contains(w.get("own/k"), cs[0].Instance()) {
			w.Fatalf("handed to %s", w.get("own/k"))
		}
		w.Ours(w.within(3*sec, done[1]))
		slow.Remove()
		if n := w.places() + w.notices(); n != 0 {
			t.Errorf("%d places in line and notices are left: %v", n, w.All())
		}
		w.CloseClean(append(cs, a)...)
	})
}

// A forced release that takes away what a waiter was just handed, and what it
// has or has not heard of, is heard of as soon as its notice comes.
func TestForcedReleaseMeetsHandOver(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{0, 2 * sec} {
		virtualCase(t, late.String(), func(t *testing.T, w *world) {
			ctx := context.Background()
			a, operator := w.peer(), w.peer()
			b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			if late > 0 {
				lateWords(host, late)
			}
			held := tryClaim(t, a, "k")
			done := acquiring(ctx, b, "k")
			time.Sleep(5 * sec)
			release(t, held)
			if err := admin.ForceRelease(ctx, operator, "k", "test"); err != nil {
				t.Fatal(err)
			}
			r := <-done
			if r.err != nil {
				lossOf(t, r.err, etcdclaims.ReasonDeleted) // it was known before it was granted
				w.Available("k", a)
				return
			}
			cl := r.cl
			time.Sleep(250*time.Millisecond + 3*late) // as late as the notice itself
			if cl.Check() == nil {
				w.Ours(cl) // had anew
			}
			w.CloseClean(a, b, operator)
		})
	}
}

// First come, first served, though many give up or die in line or while they
// hold the key.
func TestLineOfTheDying(t *testing.T) {
	t.Parallel()
	for seed := range 4 {
		virtualCase(t, fmt.Sprint(seed), func(t *testing.T, w *world) {
			const n = 20
			held := tryClaim(t, w.peer(), "k")
			_, hosts, done, leave := w.inLine("k", n)
			var mu sync.Mutex
			var order []int
			var fences []int64
			var wg sync.WaitGroup
			stays := 0
			for i := range n {
				fate := (i*7 + seed*3) % 5
				if fate > 1 {
					stays++
				}
				time.AfterFunc(time.Duration(i*(seed+1))*300*time.Millisecond, func() {
					switch fate {
					case 0:
						leave[i]()
					case 1:
						hosts[i].Kill()
						leave[i]() // a dead process waits no more
					}
				})
				wg.Go(func() {
					r := <-done[i]
					if r.err != nil {
						if fate > 1 {
							t.Errorf("waiter %d: %v", i, r.err)
						}
						return
					}
					mu.Lock()
					order, fences = append(order, i), append(fences, r.cl.Fence())
					mu.Unlock()
					time.Sleep(time.Duration(i%3) * 100 * time.Millisecond)
					_ = r.cl.Release(context.Background())
				})
			}
			release(t, held)
			wg.Wait()
			if !slices.IsSorted(order) || len(order) < stays {
				t.Errorf("served in the order %v, %d were to be", order, stays)
			}
			if !slices.IsSorted(fences) {
				t.Errorf("fences %v", fences)
			}
			time.Sleep(20 * sec)
			if n := w.places() + w.notices(); n != 0 {
				t.Errorf("%d places in line and notices are left: %v", n, w.All())
			}
		})
	}
}

// The first in line hears of the end of a dead holder's key as soon as that is
// there.
func TestFirstInLineIsWokenAtOnce(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 5 * sec})
		b := w.peer()
		tryClaim(t, a, "k")
		done := acquiring(context.Background(), b, "k")
		gone := w.deletion(w.Own("k"))
		time.Sleep(sec)
		host.Kill()
		at := <-gone
		r := <-done
		if r.err != nil {
			t.Fatal(r.err)
		}
		if d := r.at.Sub(at); d > 5*time.Millisecond {
			t.Errorf("it took %v", d)
		}
		w.CloseClean(b)
	})
}
