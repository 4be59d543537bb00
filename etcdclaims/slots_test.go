package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// slotted are the claims on all slots of "k", which b finds held then.
func (w *world) slotted(n int, a, b *etcdclaims.Client) []*etcdclaims.Claim {
	w.Helper()
	claims := make([]*etcdclaims.Claim, n)
	for i := range claims {
		claims[i] = tryClaim(w, a, "k", etcdclaims.Slots(n))
	}
	w.full(n, b)
	slices.SortFunc(claims, func(a, b *etcdclaims.Claim) int { return a.Slot() - b.Slot() })
	for i, cl := range claims {
		if cl.Slot() != i || cl.Key() != etcdclaims.SlotKey("k", i) || cl.Token() != (fencing.Token{Key: cl.Key(), Fence: cl.Fence()}) {
			w.Fatalf("claim %d is %v of slot %d", i, cl.Token(), cl.Slot())
		}
	}
	return claims
}

// full fails if a slot is free.
func (w *world) full(n int, c *etcdclaims.Client) {
	w.Helper()
	cl, err := c.TryAcquire(context.Background(), "k", etcdclaims.Slots(n))
	var held *etcdclaims.HeldError
	if !errors.As(err, &held) || held.Info.Key != "k" || held.Info.Slots != n {
		w.Fatalf("one more: %v, %v", cl, err)
	}
}

// clean removes the number of slots of "k", which no slot may be held of, and closes.
func (w *world) clean(cs ...*etcdclaims.Client) {
	w.Helper()
	noErr(w, cs[0].Resize(context.Background(), "k", 0))
	w.closeClean(cs...)
	w.noLeases()
}

func TestSlots(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 5} {
		virtualCase(t, fmt.Sprint(n), func(t *testing.T, w *world) {
			a, b := w.peer(), w.peer()
			claims := w.slotted(n, a, b)
			if _, err := b.TryAcquire(context.Background(), "k"); !errors.Is(err, etcdclaims.ErrHeld) {
				t.Errorf("without Slots: %v", err)
			}
			time.Sleep(time.Minute) // renewed
			for _, cl := range claims {
				if owns, err := cl.Owns(context.Background()); !owns || err != nil || cl.Check() != nil {
					t.Errorf("%v: %v, %v, %v", cl.Token(), owns, err, cl.Check())
				}
			}
			last := claims[n-1]
			release(t, last)
			next := tryClaim(t, b, "k", etcdclaims.Slots(n))
			if next.Slot() != n-1 || next.Fence() <= last.Fence() {
				t.Errorf("%v after %v", next.Token(), last.Token())
			}
			for _, cl := range append(claims[:n-1], next) {
				release(t, cl)
			}
			w.clean(a, b)
		})
	}
}

// A free slot is found whichever it is, in at most two round trips when nobody else asks.
func TestSlotsAreFound(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, b := w.peer(), w.peer()
		claims := w.slotted(8, a, b)
		for _, cl := range claims {
			release(t, cl)
			before := b.Stats().Requests
			next := tryClaim(t, b, "k", etcdclaims.Slots(8))
			if n := b.Stats().Requests - before; n > 2 {
				t.Errorf("%d requests", n)
			}
			release(t, next)
			tryClaim(t, a, "k", etcdclaims.Slots(8))
		}
	})
}

func TestSlotsMustAgree(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, b := w.peer(), w.peer()
		cl := tryClaim(t, a, "k", etcdclaims.Slots(3))
		for _, acquire := range []func(context.Context, string, ...etcdclaims.AcquireOption) (*etcdclaims.Claim, error){b.TryAcquire, b.Acquire, b.Acquire} {
			_, err := acquire(context.Background(), "k", etcdclaims.Slots(4))
			if !errors.Is(err, etcdclaims.ErrSlots) || err.Error() != `acquire "k": another number of slots: the key has 3, the call asks for 4; Resize changes the number` {
				t.Errorf("got %v", err)
			}
		}
		release(t, cl)
		if n := w.places(); n != 0 {
			t.Errorf("%d places are left", n)
		}
		w.clean(a, b)
	})
}

// What etcd need not be asked for.
func TestSlotsInput(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c := w.peer()
		for _, opts := range [][]etcdclaims.AcquireOption{
			{etcdclaims.Slots(0)},
			{etcdclaims.Slots(-1)},
			{etcdclaims.Slots(etcdclaims.MaxSlots + 1)},
			{etcdclaims.Slots(2), etcdclaims.Reentrant()},
			{etcdclaims.Slots(2), etcdclaims.Supersede()},
		} {
			if _, err := c.TryAcquire(context.Background(), "k", opts...); err == nil {
				t.Errorf("%d options accepted", len(opts))
			}
		}
		long := strings.Repeat("k", etcdclaims.MaxKeyBytes-len("#slot-1"))
		if _, err := c.TryAcquire(context.Background(), long, etcdclaims.Slots(11)); !errors.Is(err, etcdclaims.ErrInvalidKey) {
			t.Errorf("a key too long for its slots: %v", err)
		}
		for _, n := range []int{-1, etcdclaims.MaxSlots + 1} {
			if err := c.Resize(context.Background(), "k", n); err == nil {
				t.Errorf("resized to %d", n)
			}
		}
		if n := c.Stats().Requests; n != 0 {
			t.Errorf("%d requests", n)
		}
		tryClaim(t, c, long, etcdclaims.Slots(10))
		tryClaim(t, c, "most", etcdclaims.Slots(etcdclaims.MaxSlots))
		var none *etcdclaims.Client
		cl, err := none.TryAcquire(context.Background(), "k", etcdclaims.Slots(2))
		if noErr(t, err); cl.Slot() != 0 || cl.Key() != etcdclaims.SlotKey("k", 0) {
			t.Errorf("passthrough has %v", cl.Token())
		}
		noErr(t, none.Resize(context.Background(), "k", 2))
	})
}

// A key is claimed as a whole or by slots.
func TestSlotsAndWholeKey(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, b := w.peer(), w.peer()
		whole := tryClaim(t, a, "k")
		_, err := b.TryAcquire(context.Background(), "k", etcdclaims.Slots(2))
		var held *etcdclaims.HeldError
		if !errors.As(err, &held) || held.Info.Fence != whole.Fence() {
			t.Errorf("got %v", err)
		}
		if err := b.Resize(context.Background(), "k", 2); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("resized a claim: %v", err)
		}
		got := acquiring(context.Background(), b, "k", etcdclaims.Slots(2))
		time.Sleep(sec)
		release(t, whole)
		one := w.within(sec, got)
		next := acquiring(context.Background(), a, "k")
		time.Sleep(sec)
		if info, err := a.Lookup(context.Background(), "k"); err != nil || info.Kind != "slots" || info.Slots != 2 {
			t.Errorf("%+v, %v", info, err)
		}
		if err := a.Resize(context.Background(), "k", 0); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("forgotten while a slot is held: %v", err)
		}
		if err := a.ForceRelease(context.Background(), "k", "x"); !errors.Is(err, etcdclaims.ErrSlots) {
			t.Errorf("released by force: %v", err)
		}
		release(t, one)
		noErr(t, b.Resize(context.Background(), "k", 0))
		release(t, w.within(sec, next))
		w.closeClean(a, b)
	})
}

// First come, first served, over all slots, at once.
func TestSlotsFIFO(t *testing.T) {
	t.Parallel()
	for _, other := range []bool{false, true} {
		virtualCase(t, fmt.Sprintf("of another client %v", other), func(t *testing.T, w *world) {
			a, b := w.peer(), w.peer()
			claims := w.slotted(3, a, b)
			c := a
			if other {
				c = b
			}
			var line []<-chan claimed
			for i := range 7 {
				var opts []etcdclaims.AcquireOption
				if i%3 == 1 { // one that takes its slot itself
					opts = append(opts, etcdclaims.Note([]byte("n")))
				}
				line = append(line, acquiring(context.Background(), c, "k", append(opts, etcdclaims.Slots(3))...))
				time.Sleep(sec)
			}
			if waiting, err := b.Line(context.Background(), "k"); err != nil || len(waiting) != 7 {
				t.Errorf("in line: %v, %v", waiting, err)
			}
			if info, err := b.Lookup(context.Background(), "k"); err != nil || info.Waiting != 7 {
				t.Errorf("%+v, %v", info, err)
			}
			for i, next := range line {
				w.full(3, b)
				at := []int{1, 0, 2}[i%3]
				release(t, claims[at])
				got := w.within(sec, next)
				if got.Slot() != claims[at].Slot() || got.Fence() <= claims[at].Fence() {
					t.Errorf("%v follows %v", got.Token(), claims[at].Token())
				}
				if err := got.Note(context.Background(), []byte("x")); err != nil {
					t.Error(err)
				}
				claims[at] = got
			}
			for _, cl := range claims {
				release(t, cl)
			}
			w.clean(a, b)
		})
	}
}

// All release at once, and the line moves up by as many.
func TestSlotsReleasedTogether(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		const n = 8
		a, b := w.peer(), w.peer()
		claims := w.slotted(n, a, b)
		var line []<-chan claimed
		for range 2 * n {
			line = append(line, acquiring(context.Background(), b, "k", etcdclaims.Slots(n)))
			time.Sleep(10 * time.Millisecond)
		}
		for round := range 2 {
			for _, cl := range claims {
				go release(t, cl)
			}
			seen := map[int]bool{}
			claims = claims[:0]
			for _, next := range line[round*n : (round+1)*n] {
				cl := w.within(sec, next)
				if seen[cl.Slot()] {
					t.Errorf("slot %d twice", cl.Slot())
				}
				seen[cl.Slot()] = true
				claims = append(claims, cl)
			}
			w.full(n, a)
		}
		for _, cl := range claims {
			release(t, cl)
		}
		w.clean(a, b)
	})
}

func TestSlotsResize(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		claims := w.slotted(2, a, b)
		var line []<-chan claimed
		for range 6 {
			line = append(line, acquiring(ctx, b, "k", etcdclaims.Slots(2)))
			time.Sleep(sec)
		}
		noErr(t, a.Resize(ctx, "k", 5)) // three of those in line get on at once
		for i := range 3 {
			cl := w.within(sec, line[i])
			claims = append(claims, cl)
		}
		w.full(5, a)
		noErr(t, a.Resize(ctx, "k", 1)) // four are surplus
		slices.SortFunc(claims, func(a, b *etcdclaims.Claim) int { return a.Slot() - b.Slot() })
		for _, cl := range claims[1:] {
			noErr(t, cl.Check())
			release(t, cl)
		}
		time.Sleep(30 * sec)
		if n := w.places(); n != 3 {
			t.Fatalf("%d are in line, want 3: %v", n, w.all())
		}
		release(t, claims[0])
		last := w.within(sec, line[3])
		if last.Slot() != 0 {
			t.Errorf("slot %d", last.Slot())
		}
		noErr(t, a.Resize(ctx, "k", 3))
		for _, next := range line[4:] {
			release(t, w.within(sec, next))
		}
		release(t, last)
		w.clean(a, b)
	})
}

// The slots of a process that dies go to the first in line when its lease ends.
func TestSlotsOfTheDead(t *testing.T) {
	t.Parallel()
	const ttl = 6 * sec
	cases := map[string]*claimtest.Fault{"heard": nil}
	for how, fault := range deafness {
		cases[how] = &fault
	}
	for how, fault := range cases {
		virtualCase(t, how, func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{TTL: ttl})
			b, deaf := w.client(etcdclaims.Config{TTL: ttl})
			w.slotted(2, a, b)
			if fault != nil {
				f := *fault
				f.On, f.Times = claimtest.Watch, -1
				deaf.Inject(f)
			}
			one := acquiring(context.Background(), b, "k", etcdclaims.Slots(2))
			time.Sleep(sec)
			two := acquiring(context.Background(), b, "k", etcdclaims.Slots(2))
			time.Sleep(3 * sec)
			host.Kill()
			limit := pickUp(ttl)
			first := w.within(limit, one)
			if fault != nil {
				limit = ttl/3 + sec // the second asks one renewal later
			}
			second := w.within(limit, two)
			if first.Slot() == second.Slot() {
				t.Errorf("both have slot %d", first.Slot())
			}
			release(t, first)
			release(t, second)
			deaf.RemoveFaults()
			w.clean(b)
		})
	}
}

// A resize that a deaf waiter does not hear of delays it for one renewal interval.
func TestSlotsResizedUnheard(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		held := w.slotted(1, a, b)
		fault := deafness["every event"]
		fault.On, fault.Times = claimtest.Watch, -1
		host.Inject(fault)
		next := acquiring(context.Background(), b, "k", etcdclaims.Slots(1))
		time.Sleep(2 * sec)
		noErr(t, a.Resize(context.Background(), "k", 2))
		release(t, w.within(5*sec+100*time.Millisecond, next))
		release(t, held[0])
		host.RemoveFaults()
		w.clean(a, b)
	})
}

// Each request of a claim on a slot is lost, or its reply: no slot is lost, none is had
// twice, and none stays held by nobody.
func TestLossySlots(t *testing.T) {
	t.Parallel()
	for _, kind := range []claimtest.Kind{claimtest.Acquire, claimtest.Enqueue, claimtest.Advance, claimtest.HandOver, claimtest.Release} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			lossy(t, kind, func(t *testing.T, l *loss) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				noErr(t, l.other.Resize(ctx, "k", 2))
				releaser, waiter := l.other, l.c
				if kind == claimtest.HandOver || kind == claimtest.Release {
					releaser, waiter = l.c, l.other
				}
				slot := etcdclaims.Slots(2)
				if kind == claimtest.Acquire {
					l.strike()
				}
				held := l.slotted(2, releaser, waiter)
				if kind == claimtest.Acquire {
					released(t, held)
					held = l.slotted(2, waiter, releaser)
				}
				var opts []etcdclaims.AcquireOption
				if kind == claimtest.Advance || kind == claimtest.Release { // the slot is not handed over
					opts = append(opts, etcdclaims.Note([]byte("n")))
				}
				if kind != claimtest.Acquire {
					l.strike()
				}
				one := acquiring(ctx, waiter, "k", append(opts, slot)...)
				time.Sleep(10 * sec)
				two := acquiring(ctx, waiter, "k", append(opts, slot)...)
				time.Sleep(sec)
				release(t, held[1])
				first := l.within(3*sec, one)
				release(t, held[0])
				second := l.within(3*sec, two)
				if first.Slot() == second.Slot() {
					t.Errorf("both have slot %d", first.Slot())
				}
				l.full(2, l.other)
				l.owned(first, l.other)
				l.owned(second, l.other)
				released(t, []*etcdclaims.Claim{first, second})
				noErr(t, l.other.Resize(context.Background(), "k", 0)) // nothing is held, and nobody in line
			})
		})
	}
}

func released(t *testing.T, claims []*etcdclaims.Claim) {
	t.Helper()
	for _, cl := range claims {
		release(t, cl)
	}
}

// A caller that gives up at any time leaves nothing, also if it was handed a slot just
// then.
func TestSlotsGivenUp(t *testing.T) {
	t.Parallel()
	for _, kind := range []claimtest.Kind{claimtest.Enqueue, claimtest.Advance, claimtest.Watch, claimtest.Undo} {
		virtualCase(t, string(kind), func(t *testing.T, w *world) {
			a := w.peer()
			b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			claims := w.slotted(2, a, b)
			for i := range 20 {
				met := host.Inject(claimtest.Fault{On: kind, DelayReply: 20 * time.Millisecond})
				ctx, cancel := context.WithTimeout(context.Background(), sec)
				gaveUp := acquiring(ctx, b, "k", etcdclaims.Slots(2))
				time.Sleep(300 * time.Millisecond)
				go release(t, claims[i%2])
				time.Sleep(time.Duration(i) * 4 * time.Millisecond)
				cancel()
				if got := <-gaveUp; got.err == nil {
					release(t, got.cl)
				}
				time.Sleep(sec) // what is undone is undone in the background
				claims[i%2] = tryClaim(t, a, "k", etcdclaims.Slots(2))
				w.full(2, b)
				met.Remove()
			}
			released(t, claims)
			w.clean(a, b)
		})
	}
}

// Zombies, MinHold, MaxHold and forced releases concern one slot.
func TestSlotsOutlived(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		rests := tryClaim(t, a, "k", etcdclaims.Slots(3), etcdclaims.MinHold(30*sec))
		limited := tryClaim(t, a, "k", etcdclaims.Slots(3), etcdclaims.MaxHold(20*sec))
		forced := tryClaim(t, a, "k", etcdclaims.Slots(3))
		next := acquiring(ctx, b, "k", etcdclaims.Slots(3))
		release(t, rests)
		time.Sleep(sec)
		noErr(t, b.ForceReleaseTerm(ctx, forced.Token(), "test"))
		got := w.within(sec, next)
		if got.Slot() != forced.Slot() || got.Fence() <= forced.Fence() {
			t.Errorf("%v follows %v", got.Token(), forced.Token())
		}
		time.Sleep(sec)
		lossOf(t, forced.Err(), etcdclaims.ReasonDeleted)
		next = acquiring(ctx, b, "k", etcdclaims.Slots(3))
		time.Sleep(20 * sec)
		lossOf(t, limited.Err(), etcdclaims.ReasonMaxHold)
		if info, err := b.Lookup(ctx, limited.Key()); err != nil || info.Kind != "zombie" {
			t.Errorf("%+v, %v", info, err)
		}
		second := w.within(10*sec, next)
		if second.Slot() != rests.Slot() {
			t.Errorf("slot %d is free before its MinHold", second.Slot())
		}
		time.Sleep(15 * sec) // the zombie's lease
		third := tryClaim(t, a, "k", etcdclaims.Slots(3))
		if third.Slot() != limited.Slot() || third.Fence() <= limited.Fence() {
			t.Errorf("%v follows %v", third.Token(), limited.Token())
		}
		released(t, []*etcdclaims.Claim{got, second, third})
		time.Sleep(20 * sec)
		w.clean(a, b)
	})
}

// Many callers of two clients, a thousand with -long: never more than n, and all get their turn.
func TestSlotsManyCallers(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		const n = 4
		callers := 150
		if testetcd.Long() {
			callers = 1000
		}
		a, b := w.peer(), w.peer()
		noErr(t, a.Resize(context.Background(), "k", n))
		counts := make(chan int, 2*callers)
		done := make(chan error, callers)
		for i := range callers {
			c := a
			if i%2 == 1 {
				c = b
			}
			go func() {
				done <- c.Run(context.Background(), "k", func(context.Context) error {
					counts <- 1
					time.Sleep(time.Millisecond)
					counts <- -1
					return nil
				}, etcdclaims.Slots(n))
			}()
		}
		for range callers {
			noErr(t, <-done)
		}
		close(counts)
		now, most := 0, 0
		for d := range counts {
			now += d
			most = max(most, now)
		}
		if most != n {
			t.Errorf("%d at once, want %d", most, n)
		}
		w.clean(a, b)
	})
}
