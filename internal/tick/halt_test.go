package tick_test

import (
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
)

// A job has the pauses of its group and of its tags. They end by an operator or by themselves, whichever
// comes first.
func TestHalts(t *testing.T) {
	t.Parallel()
	halt := func(tag string, from, until, ended int) tick.Halt {
		h := tick.Halt{Tag: tag, Pause: tick.Pause{By: "me", At: at(from)}}
		if until > 0 {
			h.Until = at(until)
		}
		if ended > 0 {
			h.Ended = at(ended)
		}
		return h
	}
	all := tick.Halts{halt("", 1, 0, 3), halt("a", 2, 5, 4), halt("b", 2, 5, 7), halt("c", 9, 0, 0)}
	for _, of := range []struct {
		tags    []string
		now     int
		active  string
		leftOut time.Time
	}{
		{nil, 4, "", at(3)},
		{[]string{"x"}, 2, "", at(3)},
		{[]string{"a"}, 6, "", at(4)},
		{[]string{"b", "a"}, 8, "", at(5)},
		{[]string{"c"}, 9, "c", at(3)},
	} {
		mine, active := all.Of(of.tags), ""
		if h := mine.Active(at(of.now)); h != nil {
			active = h.Tag
		}
		if got := mine.LeftOut(at(of.now)); active != of.active || !got.Equal(of.leftOut) {
			t.Errorf("%v at %d: %q, left out up to %v", of.tags, of.now, active, got)
		}
	}
	if all.At(at(1), at(9)) != nil || all.At(at(2), at(9)).Tag != "" || all.At(at(5), at(9)).Tag != "b" || all.At(at(6), at(9)) != nil {
		t.Error("an instant is in the pause after its begin and up to its end")
	}
	if o := all.Oldest(at(9)); o == nil || o.Tag != "a" {
		t.Errorf("the first to end is %v", o)
	}
	if all[3:].Oldest(at(9)) != nil || all[:1].Oldest(at(9)) != nil {
		t.Error("one that lasts, or that of the group, is forgotten")
	}
	if got := all[3].Text(); got != "paused with tag c by me since "+at(9).Format(time.RFC3339) {
		t.Error(got)
	}
}

// A history is trimmed by the number of records, and by their age.
func TestTrimByAge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	key := func(minute int) string { return w.Entry("a", tick.Past{ID: "x", Ended: at(minute), Run: "r"}) }
	oldest := []string{key(1), key(2), key(3)}
	for before, want := range map[int]int{0: 0, 1: 0, 2: 1, 3: 2, 9: 3} {
		h := tick.History{Limit: 20, Count: 3, Oldest: slices.Clone(oldest), Before: timeOfKey(key(before))}
		n := 0
		for _, op := range h.Trim([]string{key(9)}) {
			r := op.GetRequestDeleteRange()
			for _, k := range oldest {
				if k == string(r.Key) || k > string(r.Key) && k < string(r.RangeEnd) {
					n++
				}
			}
		}
		if n != want {
			t.Errorf("before minute %d: %d records, want %d", before, n, want)
		}
	}
}

// timeOfKey returns the part of the key of a record that is its time.
func timeOfKey(key string) string { return key[len(key)-len("-r")-20 : len(key)-len("-r")] }
