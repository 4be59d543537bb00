package lanes

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/tick"
)

func at(id string, minute int) *Tick {
	nominal := time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC)
	return &Tick{Waiting: tick.Waiting{Ready: tick.Ready{ID: id, Nominal: nominal}, Key: id}}
}

// Lanes that wait for a slot are tried one after the other: that of the lowest Priority first, and then the oldest,
// but backfills last.
func TestLanesThatWaitForASlot(t *testing.T) {
	t.Parallel()
	l := New()
	for _, w := range []struct {
		id       string
		minute   int
		priority int
	}{{"old", 1, 5}, {"new", 2, 5}, {"first", 3, -1}, {tick.BackfillID + "x", 0, -9}} {
		is := at(w.id, w.minute)
		is.Priority = w.priority
		l.Add(w.id, is)
		lane := l.Next()
		l.Lift(lane)
		l.Wait(lane, Slot{"limit", 1})
	}
	next := func(want string) {
		t.Helper()
		if is := l.Next(); is == nil && want != "" || is != nil && is.Claim != want {
			t.Fatalf("%v is next, want %q", is, want)
		}
	}
	l.Free("another")
	next("")
	l.Free("limit")
	next("first")
	l.Lift(l.Next()) // it begins
	next("")
	l.Free("limit")
	next("old")
	l.Remove("old") // it is withdrawn
	next("new")
	l.Lift(l.Next())
	l.Unpark()
	next(tick.BackfillID + "x")
}

// A new priority of a job counts for the ticks that wait: in lanes that can be tried, wait for a slot or are busy.
func TestPrioritize(t *testing.T) {
	t.Parallel()
	l := New()
	for i, id := range []string{"a", "b", "c"} {
		is := at(id, i)
		is.Job = id
		l.Add(id, is)
	}
	b, c := l.Of("b"), l.Of("c")
	l.Lift(b)
	l.Wait(b, Slot{"limit", 1})
	l.Lift(c)
	c.Busy++
	l.Prioritize(map[string]int{"a": 3, "b": 2, "c": 1, "d": 9})
	if is := l.Next(); is != b {
		t.Fatalf("%v is next, want b", is)
	}
	c.Busy--
	l.Place(c)
	for _, want := range []string{"c", "b", "a"} {
		if is := l.Next(); is == nil || is.Claim != want {
			t.Fatalf("%v is next, want %s", is, want)
		}
		l.Lift(l.Next())
	}
}

// A lane that needs a slot with a lower number keeps none from being tried that can have another one. A lane
// behind one that needs the same slot need not look for it.
func TestLanesThatNeedDifferentSlots(t *testing.T) {
	t.Parallel()
	l := New()
	low, high := Slot{"limit", 1}, Slot{"limit", 3}
	wait := func(id string, minute int, needs Slot) *Lane {
		l.Add(id, at(id, minute))
		lane := l.Next()
		l.Lift(lane)
		l.Wait(lane, needs)
		return lane
	}
	old, second, third := wait("old", 1, low), wait("second", 2, high), wait("third", 3, high)
	for _, tt := range []struct {
		lane   *Lane
		needs  Slot
		behind bool
	}{{old, high, false}, {third, low, true}, {third, high, true}, {second, low, true}, {third, Slot{"limit", 2}, false}} {
		if l.IsBehind(tt.lane, tt.needs) != tt.behind {
			t.Errorf("%s is behind one that needs %v: %v", tt.lane.Claim, tt.needs, !tt.behind)
		}
	}
	l.Free("limit")
	for _, want := range []*Lane{old, second} {
		if is := l.Next(); is != want {
			t.Fatalf("%v is next, want %v", is, want)
		}
		l.Lift(want)
	}
	if is := l.Next(); is != nil {
		t.Errorf("%v is next", is)
	}
	l.Wait(old, low)
	l.Wait(second, high)
	for _, id := range []string{"old", "second", "third"} {
		l.Remove(id)
		l.Lift(l.Of(id))
	}
	if len(l.full) != 0 {
		t.Errorf("left: %v", l.full)
	}
}

// The lane whose first tick is the oldest is next, backfills come last, and a lane that is busy, is
// parked or waits for its time is not tried.
func TestLanes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New()
		next := func(when, want string) {
			t.Helper()
			got := ""
			if lane := l.Next(); lane != nil {
				got = lane.Claim + " " + lane.Line.Ticks[0].ID
			}
			if got != want {
				t.Errorf("%s: %q is next, want %q", when, got, want)
			}
		}
		next("nothing waits", "")
		l.Add("fill", at(tick.BackfillID+"x", 0))
		l.Add("a", at("a3", 3))
		l.Add("b", at("b2", 2))
		next("of two", "b b2")
		l.Add("a", at("a1", 1))
		next("an older one", "a a1")
		a := l.Of("a")
		a.Busy++
		l.Place(a)
		next("a is busy", "b b2")
		a.Busy--
		a.At = clock.Mono().Add(time.Minute)
		l.Place(a)
		b := l.Next()
		l.Lift(b)
		l.Park(b)
		next("b is parked", "fill "+tick.BackfillID+"x")
		if d := l.Soonest(clock.Mono(), time.Hour); d != time.Minute {
			t.Errorf("sooner by %v", d)
		}
		time.Sleep(time.Minute)
		l.Wake(clock.Mono())
		next("a minute later", "a a1")
		l.Unpark()
		l.Remove("a1")
		next("the first is gone", "b b2")
		a.At, a.Rests = clock.Mono().Add(time.Hour), true
		l.Place(a)
		l.Remove("b2")
		l.Add("a", at("a0", 0)) // it does not rest
		next("another is the first", "a a0")
		a.At = clock.Mono().Add(time.Hour)
		l.Place(a)
		l.Retry([]string{"a"}, false)
		next("the claim is free", "a a0")
		for _, key := range []string{"a0", "a3", tick.BackfillID + "x"} {
			l.Remove(key)
		}
		if next("all are gone", ""); l.Len() != 0 {
			t.Errorf("%d are left", l.Len())
		}
	})
}
