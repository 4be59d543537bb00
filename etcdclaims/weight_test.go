package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd/deafness"
	"google.golang.org/grpc/codes"
)

// heavy are the options of a claim on k of n slots.
func heavy(n, k int, more ...etcdclaims.AcquireOption) []etcdclaims.AcquireOption {
	return append(more, etcdclaims.Slots(n), etcdclaims.Weight(k))
}

// has fails unless the claim has k slots, by its own word and by etcd's.
func (w *world) has(cl *etcdclaims.Claim, k int) {
	w.Helper()
	slots := cl.Slots()
	if len(slots) != k || slots[0] != cl.Slot() || !slices.IsSorted(slots) || cl.Key() != etcdclaims.SlotKey("k", slots[0]) {
		w.Fatalf("slots %v of %v", slots, cl.Token())
	}
	for _, i := range slots {
		info, err := w.reader().Lookup(context.Background(), etcdclaims.SlotKey("k", i))
		if err != nil || info.Claim != cl.ID() || info.Fence != cl.Fence() || k > 1 && info.Weight != k {
			w.Fatalf("slot %d of %v: %+v, %v", i, slots, info, err)
		}
	}
}

func (w *world) reader() *etcdclaims.Client {
	return w.peer()
}

// freeSlots fails unless so many of the slots of "k" are free.
func (w *world) freeSlots(n, free int) {
	w.Helper()
	info, err := w.reader().Lookup(context.Background(), "k")
	if err != nil || info.Slots != n || info.Taken != n-free {
		w.Fatalf("want %d of %d free: %+v, %v", free, n, info, err)
	}
}

func TestWeight(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		first := tryClaim(t, a, "k", heavy(8, 5)...)
		w.has(first, 5)
		_, err := b.TryAcquire(ctx, "k", heavy(8, 4)...)
		var held *etcdclaims.HeldError
		if !errors.As(err, &held) || held.Info.Key != "k" || held.Info.Slots != 8 {
			t.Errorf("four of three: %v", err)
		}
		w.freeSlots(8, 3)
		second := tryClaim(t, b, "k", heavy(8, 3)...)
		w.has(second, 3)
		w.full(8, a)
		time.Sleep(time.Minute + 2*sec) // renewed, and not just now
		for _, cl := range []*etcdclaims.Claim{first, second} {
			if owns, err := cl.Owns(ctx); !owns || err != nil || cl.Check() != nil {
				t.Errorf("%v: %v, %v, %v", cl.Token(), owns, err, cl.Check())
			}
		}
		before := a.Stats().Requests
		release(t, first)
		if n := a.Stats().Requests - before; n > 1 {
			t.Errorf("%d requests to release five slots", n)
		}
		w.freeSlots(8, 5)
		whole := a.Stats()
		if whole.Acquired != 1 || whole.Released != 1 {
			t.Errorf("five slots count as %d claims, %d released", whole.Acquired, whole.Released)
		}
		release(t, second)
		w.clean(a, b)
	})
}

// What etcd need not be asked for.
func TestWeightInput(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c := w.peer()
		for _, opts := range [][]etcdclaims.AcquireOption{
			{etcdclaims.Weight(1)},
			heavy(2, 0), heavy(2, -1), heavy(2, 3), heavy(etcdclaims.MaxSlots, etcdclaims.MaxWeight+1),
		} {
			if cl, err := c.TryAcquire(context.Background(), "k", opts...); err == nil {
				t.Errorf("accepted: %v", cl.Token())
			}
		}
		if n := c.Stats().Requests; n != 0 {
			t.Errorf("%d requests", n)
		}
		most := tryClaim(t, c, "k", heavy(etcdclaims.MaxSlots, etcdclaims.MaxWeight)...)
		w.has(most, etcdclaims.MaxWeight)
		release(t, most)
		none := newClient(t, nil, etcdclaims.Config{})
		cl, err := none.TryAcquire(context.Background(), "k", heavy(4, 3)...)
		if noErr(t, err); !slices.Equal(cl.Slots(), []int{0, 1, 2}) {
			t.Errorf("passthrough has %v", cl.Slots())
		}
		if cl, err = none.TryAcquire(context.Background(), "k"); err != nil || cl.Slots() != nil {
			t.Errorf("%v, %v", cl.Slots(), err)
		}
		w.clean(c)
	})
}

// A heavy caller is not starved by light ones that come later, nor do those wait when there
// is room for all.
func TestWeightFIFO(t *testing.T) {
	t.Parallel()
	for _, one := range []bool{true, false} {
		virtualCase(t, fmt.Sprintf("one client %v", one), func(t *testing.T, w *world) {
			ctx := context.Background()
			a := w.peer()
			b := a
			if !one {
				b = w.peer()
			}
			held := w.slotted(4, a, b)
			three := acquiring(ctx, b, "k", heavy(4, 3)...)
			time.Sleep(sec)
			light := acquiring(ctx, b, "k", etcdclaims.Slots(4))
			time.Sleep(sec)
			two := acquiring(ctx, b, "k", heavy(4, 2)...)
			time.Sleep(sec)
			if line, err := a.Line(ctx, "k"); err != nil || len(line) != 3 || line[0].Weight != 3 || line[1].Weight != 0 || line[2].Weight != 2 {
				t.Errorf("in line: %+v, %v", line, err)
			}
			for i := range 2 {
				release(t, held[i])
				time.Sleep(30 * sec)
				w.freeSlots(4, i+1) // for the first in line
				if w.places() != 3 {
					t.Fatalf("%d in line", w.places())
				}
			}
			release(t, held[2])
			heavyOne := w.within(sec, three)
			w.has(heavyOne, 3)
			w.full(4, a)
			release(t, held[3])
			one := w.within(sec, light)
			w.full(4, a)
			release(t, heavyOne)
			w.has(w.within(sec, two), 2)
			last := tryClaim(t, a, "k", etcdclaims.Slots(4))
			w.full(4, b)
			release(t, last)
			release(t, one)
		})
	}
}

// The slots of a heavy holder that dies go to those in line.
func TestWeightOfTheDead(t *testing.T) {
	t.Parallel()
	const ttl = 6 * sec
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, host := w.client(etcdclaims.Config{TTL: ttl})
		b, _ := w.client(etcdclaims.Config{TTL: ttl})
		tryClaim(t, a, "k", heavy(4, 4)...)
		three := acquiring(ctx, b, "k", heavy(4, 3)...)
		time.Sleep(sec)
		one := acquiring(ctx, b, "k", etcdclaims.Slots(4))
		time.Sleep(3 * sec)
		host.Kill()
		first := w.within(pickUp(ttl), three)
		w.has(first, 3)
		second := w.within(sec, one)
		release(t, first)
		release(t, second)
		w.clean(b)
	})
}

// If one slot is taken away, the whole claim is lost, once. The other slots are those of a zombie.
func TestWeightForced(t *testing.T) {
	t.Parallel()
	for which := range 3 {
		for _, deaf := range []bool{false, true} {
			virtualCase(t, fmt.Sprintf("slot %d, deaf %v", which, deaf), func(t *testing.T, w *world) {
				ctx := context.Background()
				lost := make(chan *etcdclaims.LostError, 10)
				a, host := w.client(etcdclaims.Config{TTL: 15 * sec, Hooks: etcdclaims.Hooks{Lost: func(l *etcdclaims.LostError) { lost <- l }}})
				b := w.peer()
				if deaf {
					host.Inject(deafness.Kinds()[deafness.EveryEvent])
				}
				cl := tryClaim(t, a, "k", heavy(4, 3)...)
				noErr(t, b.ForceRelease(ctx, etcdclaims.SlotKey("k", cl.Slots()[which]), "test"))
				select {
				case <-cl.Done():
				case <-time.After(15 * sec):
					t.Fatal("not told")
				}
				time.Sleep(sec)
				if !errors.Is(cl.Err(), etcdclaims.ErrLost) || cl.Check() == nil {
					t.Errorf("%v, %v", cl.Err(), cl.Check())
				}
				if n := len(lost); n != 1 || (<-lost).Token != cl.Token() {
					t.Errorf("told %d times, or of another token", n)
				}
				if s := a.Stats(); len(s.Lost) != 1 {
					t.Errorf("counted %v", s.Lost)
				}
				w.freeSlots(4, 2)
				time.Sleep(17 * sec) // a handler may go on to use them
				w.freeSlots(4, 4)
				next := tryClaim(t, b, "k", heavy(4, 4)...)
				if next.Fence() <= cl.Fence() {
					t.Error("the fence did not rise")
				}
				release(t, next)
				host.RemoveFaults()
				w.clean(b, a)
			})
		}
	}
}

// Each request of a heavy claim is lost, or its reply: no slot is lost, none is had twice, and
// none stays held by nobody.
func TestLossyWeight(t *testing.T) {
	t.Parallel()
	for _, kind := range []claimtest.Kind{claimtest.Acquire, claimtest.Enqueue, claimtest.Advance, claimtest.Release} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			lossy(t, kind, func(t *testing.T, l *loss) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				noErr(t, l.other.Resize(ctx, "k", 4))
				releaser, waiter := l.other, l.c
				if kind == claimtest.Release {
					releaser, waiter = l.c, l.other
				}
				if kind == claimtest.Acquire {
					l.strike()
					first := tryClaim(t, waiter, "k", heavy(4, 3)...)
					l.has(first, 3)
					release(t, first)
				}
				held := tryClaim(t, releaser, "k", heavy(4, 3)...)
				if kind != claimtest.Acquire {
					l.strike()
				}
				one := acquiring(ctx, waiter, "k", heavy(4, 2)...)
				time.Sleep(10 * sec)
				two := acquiring(ctx, waiter, "k", heavy(4, 2)...)
				time.Sleep(sec)
				release(t, held)
				first := l.within(3*sec, one)
				second := l.within(3*sec, two)
				l.has(first, 2)
				l.has(second, 2)
				l.full(4, l.other)
				released(t, []*etcdclaims.Claim{first, second})
				noErr(t, l.other.Resize(context.Background(), "k", 0)) // nothing is held, and nobody in line
			})
		})
	}
}

// A heavy caller that gives up at any time leaves nothing.
func TestWeightGivenUp(t *testing.T) {
	t.Parallel()
	for _, kind := range []claimtest.Kind{claimtest.Enqueue, claimtest.Advance, claimtest.Watch, claimtest.Undo} {
		virtualCase(t, string(kind), func(t *testing.T, w *world) {
			a := w.peer()
			b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			held := tryClaim(t, a, "k", heavy(4, 2)...)
			for i := range 20 {
				met := host.Inject(claimtest.Fault{On: kind, DelayReply: 20 * time.Millisecond})
				ctx, cancel := context.WithTimeout(context.Background(), sec)
				gaveUp := acquiring(ctx, b, "k", heavy(4, 3)...)
				time.Sleep(300 * time.Millisecond)
				go release(t, held)
				time.Sleep(time.Duration(i) * 4 * time.Millisecond)
				cancel()
				if got := <-gaveUp; got.err == nil {
					release(t, got.cl)
				}
				time.Sleep(sec) // what is undone is undone in the background
				w.freeSlots(4, 4)
				held = tryClaim(t, a, "k", heavy(4, 2)...)
				met.Remove()
			}
			release(t, held)
			w.clean(a, b)
		})
	}
}

// All slots of a claim rest, or are those of a zombie, as long as one.
func TestWeightOutlived(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		release(t, tryClaim(t, a, "k", heavy(4, 3, etcdclaims.MinHold(10*sec))...))
		w.freeSlots(4, 1)
		time.Sleep(9 * sec)
		w.freeSlots(4, 1)
		time.Sleep(4 * sec)
		w.freeSlots(4, 4)

		tooLong := tryClaim(t, a, "k", heavy(4, 2, etcdclaims.MaxHold(10*sec))...)
		time.Sleep(10*sec + 100*time.Millisecond)
		var lost *etcdclaims.LostError
		if !errors.As(tooLong.Err(), &lost) || lost.Reason != etcdclaims.ReasonMaxHold {
			t.Errorf("too long: %v", tooLong.Err())
		}
		time.Sleep(5 * sec)
		w.freeSlots(4, 2) // its handler may go on
		time.Sleep(15 * sec)
		w.freeSlots(4, 4)

		held := tryClaim(t, a, "k", heavy(4, 3)...)
		if n, err := a.ReleaseAll(ctx); n != 1 || err != nil || !errors.Is(held.Err(), etcdclaims.ErrReleased) {
			t.Errorf("released %d, %v: %v", n, err, held.Err())
		}
		w.freeSlots(4, 4)
		tryClaim(t, a, "k", heavy(4, 3)...)
		noErr(t, a.Close(ctx))
		w.freeSlots(4, 4)
		w.clean(b)
	})
}

// Of a key that was made too small for it a caller in line takes nothing, and it is told.
func TestWeightResized(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		held := tryClaim(t, a, "k", heavy(4, 3)...)
		three := acquiring(ctx, b, "k", heavy(4, 3)...)
		time.Sleep(sec)
		noErr(t, a.Resize(ctx, "k", 6))
		second := w.within(sec, three)
		w.has(second, 3)
		next := acquiring(ctx, b, "k", heavy(6, 5)...)
		time.Sleep(sec)
		noErr(t, a.Resize(ctx, "k", 4))
		select {
		case got := <-next:
			if !errors.Is(got.err, etcdclaims.ErrSlots) {
				t.Errorf("five of four: %v", got.err)
			}
		case <-time.After(sec):
			t.Error("five of four: waits")
		}
		noErr(t, held.Check())
		release(t, held)
		release(t, second)
		w.freeSlots(4, 4)
		w.clean(a, b)
	})
}

// Many callers of all weights, in two clients, of which one is slow: never are more slots held
// than there are, each has all that it asked for, and in the end nothing is left.
func TestWeightCrowd(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		const n, callers = 6, 60
		ctx := context.Background()
		a := w.peer()
		b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 30 * time.Millisecond})
		var done []<-chan claimed
		for i := range callers {
			c := a
			if i%3 == 0 {
				c = b
			}
			one := make(chan claimed, 1)
			go func() {
				cl, err := c.Acquire(ctx, "k", heavy(n, 1+i*7%n)...)
				if err == nil {
					if got := cl.Slots(); len(got) != 1+i*7%n {
						t.Errorf("slots %v, want %d", got, 1+i*7%n)
					}
					time.Sleep(time.Duration(i%5) * 50 * time.Millisecond)
					err = cl.Release(ctx)
				}
				one <- claimed{cl: cl, err: err}
			}()
			done = append(done, one)
			time.Sleep(7 * time.Millisecond)
		}
		for _, one := range done {
			w.within(5*time.Minute, one)
		}
		w.freeSlots(n, n)
		w.clean(a, b)
	})
}

// The reply of a heavy claim arrives when one of its slots was taken away, and claimed anew by
// another caller of the same client. That claim goes on, and the heavy one never was.
func TestWeightOvertaken(t *testing.T) {
	t.Parallel()
	for slot := range 2 {
		for _, lost := range []bool{false, true} {
			virtualCase(t, fmt.Sprintf("slot %d, reply lost %v", slot, lost), func(t *testing.T, w *world) {
				ctx := context.Background()
				a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				b := w.peer()
				noErr(t, b.Resize(ctx, "k", 2))
				release(t, tryClaim(t, a, "other")) // it has a session
				host.Inject(claimtest.Fault{On: claimtest.Acquire, DelayReply: 2 * sec, LoseReply: lost})
				got := make(chan claimed, 1)
				go func() {
					cl, err := a.TryAcquire(ctx, "k", heavy(2, 2)...)
					got <- claimed{cl: cl, err: err}
				}()
				time.Sleep(sec)
				noErr(t, b.ForceRelease(ctx, etcdclaims.SlotKey("k", slot), "test"))
				light := tryClaim(t, a, "k", etcdclaims.Slots(2))
				if r := <-got; r.err == nil {
					t.Errorf("had as a whole: %v", r.cl.Slots())
				}
				time.Sleep(20 * sec)
				noErr(t, light.Check())
				w.freeSlots(2, 1)
				release(t, light)
				w.clean(b, a)
			})
		}
	}
}

// The release of a heavy claim is lost on its way, and somebody takes its first slot away before
// it is sent again: the other slots are freed all the same.
func TestWeightForcedWhileReleased(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		b := w.peer()
		cl := tryClaim(t, a, "k", heavy(4, 3)...)
		first := cl.Key()
		met := host.Inject(claimtest.Fault{On: claimtest.Release, LoseRequest: true, Code: codes.Unavailable, Saw: func(any) {
			go func() { noErr(t, b.ForceRelease(ctx, first, "test")) }()
			time.Sleep(100 * time.Millisecond)
		}})
		_ = cl.Release(ctx)
		if met.Hits() != 1 {
			t.Error("the request was not lost")
		}
		time.Sleep(sec)
		w.freeSlots(4, 4)
		w.clean(b, a)
	})
}
