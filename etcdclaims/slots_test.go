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
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testetcd/deafness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
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
	noErr(w, admin.Resize(context.Background(), cs[0], "k", 0))
	w.CloseClean(cs...)
	w.NoLeases()
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
			if err := admin.Resize(context.Background(), c, "k", n); err == nil {
				t.Errorf("resized to %d", n)
			}
		}
		if n := c.Stats().Requests; n != 0 {
			t.Errorf("%d requests", n)
		}
		tryClaim(t, c, long, etcdclaims.Slots(10))
		tryClaim(t, c, "most", etcdclaims.Slots(etcdclaims.MaxSlots))
		none := newClient(t, nil, etcdclaims.Config{})
		cl, err := none.TryAcquire(context.Background(), "k", etcdclaims.Slots(2))
		if noErr(t, err); cl.Slot() != 0 || cl.Key() != etcdclaims.SlotKey("k", 0) {
			t.Errorf("passthrough has %v", cl.Token())
		}
		noErr(t, admin.Resize(context.Background(), none, "k", 2))
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
		if err := admin.Resize(context.Background(), b, "k", 2); !errors.Is(err, etcdclaims.ErrHeld) {
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
		if err := admin.Resize(context.Background(), a, "k", 0); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("forgotten while a slot is held: %v", err)
		}
		if err := admin.ForceRelease(context.Background(), a, "k", "x"); !errors.Is(err, etcdclaims.ErrSlots) {
			t.Errorf("released by force: %v", err)
		}
		release(t, one)
		noErr(t, admin.Resize(context.Background(), b, "k", 0))
		release(t, w.within(sec, next))
		w.CloseClean(a, b)
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
			if waiting, err := admin.Line(context.Background(), b, "k"); err != nil || len(waiting) != 7 {
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
		noErr(t, admin.Resize(ctx, a, "k", 5)) // three of those in line get on at once
		for i := range 3 {
			cl := w.within(sec, line[i])
			claims = append(claims, cl)
		}
		w.full(5, a)
		noErr(t, admin.Resize(ctx, a, "k", 1)) // four are surplus
		slices.SortFunc(claims, func(a, b *etcdclaims.Claim) int { return a.Slot() - b.Slot() })
		for _, cl := range claims[1:] {
			noErr(t, cl.Check())
			release(t, cl)
		}
		time.Sleep(30 * sec)
		if n := w.places(); n != 3 {
			t.Fatalf("%d are in line, want 3: %v", n, w.All())
		}
		release(t, claims[0])
		last := w.within(sec, line[3])
		if last.Slot() != 0 {
			t.Errorf("slot %d", last.Slot())
		}
		noErr(t, admin.Resize(ctx, a, "k", 3))
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
	for how, fault := range deafness.Kinds() {
		cases[how] = &fault
	}
	for how, fault := range cases {
		virtualCase(t, how, func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{TTL: ttl})
			b, deaf := w.client(etcdclaims.Config{TTL: ttl})
			w.slotted(2, a, b)
			if fault != nil {
				f := *fault
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
		fault := deafness.Kinds()[deafness.EveryEvent]
		host.Inject(fault)
		next := acquiring(context.Background(), b, "k", etcdclaims.Slots(1))
		time.Sleep(2 * sec)
		noErr(t, admin.Resize(context.Background(), a, "k", 2))
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
	for _, kind := range []claimtest.Kind{steps.Take, steps.Enqueue, steps.Advance, steps.HandOver, steps.Free} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			lossy(t, kind, func(t *testing.T, l *loss) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				noErr(t, admin.Resize(ctx, l.other, "k", 2))
				releaser, waiter := l.other, l.c
				if kind == steps.HandOver || kind == steps.Free {
					releaser, waiter = l.c, l.other
				}
				slot := etcdclaims.Slots(2)
				if kind == steps.Take {
					l.strike()
				}
				held := l.slotted(2, releaser, waiter)
				if kind == steps.Take {
					released(t, held)
					held = l.slotted(2, waiter, releaser)
				}
				var opts []etcdclaims.AcquireOption
				if kind == steps.Advance || kind == steps.Free { // the slot is not handed over
					opts = append(opts, etcdclaims.Note([]byte("n")))
				}
				if kind != steps.Take {
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
				noErr(t, admin.Resize(context.Background(), l.other, "k", 0)) // nothing is held, and nobody in line
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
	for _, kind := range []claimtest.Kind{steps.Enqueue, steps.Advance, claimtest.Watch, steps.Undo} {
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
		noErr(t, admin.ForceReleaseTerm(ctx, b, forced.Token(), "test"))
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
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		const n = 4
		callers := 150
		if testetcd.Long() {
			callers = 1000
		}
		a, b := w.peer(), w.peer()
		noErr(t, admin.Resize(context.Background(), a, "k", n))
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

// A holder hands its slot over also if it was the first of all, or has joined the line
// when the key had fewer slots.
func TestSlotsHandedOverByAll(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		first, firstHost := w.client(etcdclaims.Config{TTL: 15 * sec})
		late, lateHost := w.client(etcdclaims.Config{TTL: 15 * sec})
		a := w.peer()
		handsOver := func(cl *etcdclaims.Claim, host *claimtest.Host, n int) *etcdclaims.Claim {
			t.Helper()
			next := acquiring(ctx, a, "k", etcdclaims.Slots(n))
			time.Sleep(sec)
			release(t, cl)
			got := w.within(sec, next)
			if sent := len(host.Sent(steps.HandOver)); sent != 1 {
				t.Errorf("%v: %d hand-overs", cl.Token(), sent)
			}
			return got
		}
		held := handsOver(tryClaim(t, first, "k", etcdclaims.Slots(1)), firstHost, 1)
		one := acquiring(ctx, a, "k", etcdclaims.Slots(1))
		time.Sleep(sec)
		two := acquiring(ctx, late, "k", etcdclaims.Slots(1))
		time.Sleep(sec)
		noErr(t, admin.Resize(ctx, a, "k", 2))
		release(t, w.within(sec, one))
		second := w.within(sec, two)
		if second.Slot() != 1 {
			t.Errorf("slot %d", second.Slot())
		}
		released(t, []*etcdclaims.Claim{handsOver(second, lateHost, 2), held})
		w.clean(a, first, late)
	})
}

// A request that is carried out twice takes a slot, and joins the line. A slot that is
// handed to that place before the place is deleted is given up.
func TestSlotsCarriedOutTwice(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		virtualCase(t, fmt.Sprintf("reply lost %v", lost), func(t *testing.T, w *world) {
			ctx := context.Background()
			a := w.peer()
			b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			held := w.slotted(2, a, b)
			brief, cancel := context.WithTimeout(ctx, sec)
			defer cancel()
			if _, err := b.Acquire(brief, "k", etcdclaims.Slots(2)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err) // b asks for a place in line from now on
			}
			time.Sleep(sec)
			released(t, held)
			var other *etcdclaims.Claim
			twice := claimtest.Fault{On: steps.Enqueue, Saw: func(req any) {
				_, err := pb.NewKVClient(w.Raw.ActiveConnection()).Txn(ctx, req.(*pb.TxnRequest))
				noErr(t, err)
				other = tryClaim(t, a, "k", etcdclaims.Slots(2))
			}}
			if lost {
				twice.LoseReply, twice.Code = true, codes.Unavailable
			}
			host.Inject(twice)
			host.Inject(claimtest.Fault{On: steps.Leave, DelayRequest: sec})
			holder := acquiring(ctx, b, "k", etcdclaims.Slots(2))
			time.Sleep(sec / 2)
			release(t, other)
			got := w.within(sec, holder) // once its place is deleted
			time.Sleep(3 * sec)
			next := tryClaim(t, a, "k", etcdclaims.Slots(2))
			if next.Slot() == got.Slot() {
				t.Errorf("both have slot %d", got.Slot())
			}
			if n := w.places(); n != 0 {
				t.Errorf("%d places", n)
			}
			w.owned(got, a)
			released(t, []*etcdclaims.Claim{got, next})
			w.clean(a, b)
		})
	}
}

// Keys that look like those of slots are none. Callers cannot claim them.
func TestSlotsBesideSimilarKeys(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		claims := w.slotted(2, a, b)
		var similar []*etcdclaims.Claim
		for _, key := range []string{"k#slot-machine", "k#slot-1x", "k#slot-01", "k#slot-256", "k#slot-"} {
			similar = append(similar, tryClaim(t, b, key, option.OwnKey{}))
		}
		next := acquiring(ctx, b, "k", etcdclaims.Slots(2))
		time.Sleep(sec)
		if err := admin.Resize(ctx, a, "k", 0); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("resized while slots are held: %v", err)
		}
		release(t, claims[1])
		released(t, []*etcdclaims.Claim{w.within(sec, next), claims[0]})
		noErr(t, admin.Resize(ctx, a, "k", 0))
		released(t, similar)
		w.CloseClean(a, b)
	})
}

// A caller that wants one slot by its key does not pass those in line for any.
func TestSlotsHaveNoLocalWaiters(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, b := w.peer(), w.peer()
		held := w.slotted(1, a, b)
		plain := acquiring(context.Background(), a, etcdclaims.SlotKey("k", 0), option.OwnKey{}) // as only this module can
		time.Sleep(sec)
		next := acquiring(context.Background(), b, "k", etcdclaims.Slots(1))
		time.Sleep(sec)
		release(t, held[0])
		release(t, w.within(sec, next))
		release(t, w.within(sec, plain))
		w.clean(a, b)
	})
}

// The record may have another spacing, and fields of later versions.
func TestSlotsRecordOfAnother(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		put := func(n int) {
			_, err := w.Raw.Put(ctx, w.Own("k"), fmt.Sprintf(`{ "v": 1, "kind": "slots", "slots": %d, "later": true }`, n))
			noErr(t, err)
		}
		put(2)
		claims := w.slotted(2, a, b)
		next := acquiring(ctx, b, "k", etcdclaims.Slots(2))
		time.Sleep(sec)
		release(t, claims[0])
		claims[0] = w.within(sec, next)
		next = acquiring(ctx, b, "k", etcdclaims.Slots(2))
		time.Sleep(sec)
		put(3) // while it is in line
		third := w.within(sec, next)
		noErr(t, admin.Resize(ctx, a, "k", 4))
		released(t, append(claims, third, tryClaim(t, b, "k", etcdclaims.Slots(4))))
		put(4)
		w.clean(a, b)
	})
}

// A claim on the whole key and the first one on a slot, by one client at once, do not
// share a request: both would put the same key.
func TestSlotsAndWholeKeyAtOnce(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		host.Inject(claimtest.Fault{On: steps.Take, Times: -1, DelayReply: 5 * time.Millisecond, Saw: func(req any) {
			puts := make(map[string]int)
			countPuts(req.(*pb.TxnRequest), puts)
			for key, n := range puts {
				if n > 1 {
					t.Errorf("%s is put %d times", key, n)
				}
			}
		}})
		done := make(chan bool)
		const keys = 100
		for i := range 2 * keys {
			go func() {
				var opts []etcdclaims.AcquireOption
				if i%2 == 0 {
					opts = append(opts, etcdclaims.Slots(1))
				} else {
					time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				}
				cl, err := c.TryAcquire(context.Background(), fmt.Sprint("k", i/2), opts...)
				if err != nil && !errors.Is(err, etcdclaims.ErrHeld) {
					t.Error(err)
				}
				done <- cl != nil
			}()
		}
		got := 0
		for range 2 * keys {
			if <-done {
				got++
			}
		}
		if got != keys {
			t.Errorf("%d of %d", got, keys)
		}
	})
}

// countPuts counts how often the first branches of a transaction put a key.
func countPuts(in *pb.TxnRequest, puts map[string]int) {
	for _, op := range in.Success {
		if p := op.GetRequestPut(); p != nil {
			puts[string(p.Key)]++
		} else if inner := op.GetRequestTxn(); inner != nil {
			countPuts(inner, puts)
		}
	}
}

// Many that release at once hand over all the same: those of one client without a refused
// request for each other, those of many by trying again.
func TestSlotsReleasedByMany(t *testing.T) {
	t.Parallel()
	for n, clients := range map[int]int{40: 1, 14: 14} {
		virtualCase(t, fmt.Sprintf("%d by %d", n, clients), func(t *testing.T, w *world) {
			b := w.peer()
			noErr(t, admin.Resize(context.Background(), b, "k", n))
			var hosts []*claimtest.Host
			var claims []*etcdclaims.Claim
			for range clients {
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				hosts = append(hosts, host)
				for range n / clients {
					claims = append(claims, tryClaim(t, c, "k", etcdclaims.Slots(n)))
				}
			}
			var line []<-chan claimed
			for range n {
				line = append(line, acquiring(context.Background(), b, "k", etcdclaims.Slots(n)))
			}
			time.Sleep(5 * sec)
			for _, host := range hosts {
				host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 2 * time.Millisecond})
			}
			for _, cl := range claims {
				go release(t, cl)
			}
			for i, next := range line {
				claims[i] = w.within(sec/2, next)
			}
			for _, host := range hosts {
				freed, over := len(host.Sent(steps.Free)), len(host.Sent(steps.HandOver))
				if freed > n/clients || clients == 1 && over > n { // each asks once whether there is a line
					t.Errorf("%d releases, %d hand-overs", freed, over)
				}
				host.RemoveFaults()
			}
			released(t, claims)
		})
	}
}

// Callers of one client that try at once share refusals, and take all slots that are free.
func TestSlotsTriedTogether(t *testing.T) {
	t.Parallel()
	for _, free := range []int{0, 5} {
		virtualCase(t, fmt.Sprintf("%d free", free), func(t *testing.T, w *world) {
			const n, callers = 20, 1000
			a := w.peer()
			b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			claims := w.slotted(n, a, b)
			released(t, claims[:free])
			host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 5 * time.Millisecond})
			before, begun := b.Stats().Requests, time.Now()
			done := make(chan *etcdclaims.Claim, callers)
			for range callers {
				go func() {
					cl, err := b.TryAcquire(context.Background(), "k", etcdclaims.Slots(n))
					if err != nil && !errors.Is(err, etcdclaims.ErrHeld) {
						t.Error(err)
					}
					done <- cl
				}()
			}
			got := claims[free:]
			for range callers {
				if cl := <-done; cl != nil {
					got = append(got, cl)
				}
			}
			if len(got) != n {
				t.Errorf("%d of %d slots", len(got), n)
			}
			// For each slot, some that find it and one that takes it.
			if sent := b.Stats().Requests - before; sent > int64(8*free+4) || time.Since(begun) > sec {
				t.Errorf("%d requests in %v", sent, time.Since(begun))
			}
			host.RemoveFaults()
			released(t, got)
			w.clean(a, b)
		})
	}
}
