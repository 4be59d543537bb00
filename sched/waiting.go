package sched

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
)

// waiter is a waiting tick: admitted, and not begun.
type waiter struct {
	ready
	key      string
	rev      int64
	deadline time.Time // the StartDeadline as an instant; zero if there is none
	begins   time.Time // when it can begin, by the monotonic clock; zero for at once
}

// value returns the tick as a step knows it.
func (w waiter) value() tick.Waiting { return tick.Waiting{Ready: w.ready, Key: w.key, Rev: w.rev} }

// leftOut returns the record of a waiting tick that will not begin.
func (w waiter) leftOut(why Outcome, now time.Time) past { return w.value().LeftOut(why, now) }

// byTime orders ticks by nominal time.
func byTime(a, b *waiter) int {
	return cmp.Or(a.Nominal.Compare(b.Nominal), strings.Compare(a.ID, b.ID), strings.Compare(a.key, b.key))
}

// byTurn orders ticks by which begins first: all others before backfills, and then by
// time.
func byTurn(a, b *waiter) int {
	if first, second := isBackfill(a.ID), isBackfill(b.ID); first != second {
		if first {
			return 1
		}
		return -1
	}
	return byTime(a, b)
}

// line is a sorted list of ticks. Ticks are usually added at its end and removed at
// its front.
type line struct {
	order func(a, b *waiter) int
	ticks []*waiter
}

func (l *line) add(w *waiter) {
	i, _ := slices.BinarySearchFunc(l.ticks, w, l.order)
	l.ticks = slices.Insert(l.ticks, i, w)
}

func (l *line) remove(w *waiter) {
	switch i, ok := slices.BinarySearchFunc(l.ticks, w, l.order); {
	case !ok:
	case i == 0:
		l.ticks[0] = nil
		l.ticks = l.ticks[1:]
	default:
		l.ticks = slices.Delete(l.ticks, i, i+1)
	}
}
