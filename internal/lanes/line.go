// Package lanes has the ticks that wait to begin, in the order in which they begin. It has no I/O.
package lanes

import (
	"cmp"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
)

// Tick is a waiting tick: admitted, and not begun.
type Tick struct {
	tick.Waiting
	Deadline time.Time // until when it has to begin; zero if there is no limit
	Begins   time.Time // when it can begin, by the monotonic clock; zero for at once
	Priority int       // of its job
}

// ByTime orders ticks by nominal time.
func ByTime(a, b *Tick) int {
	return cmp.Or(a.Nominal.Compare(b.Nominal), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Key, b.Key))
}

// ByTurn orders ticks by which begins first: all others before backfills, and then by
// time.
func ByTurn(a, b *Tick) int {
	if first, second := tick.IsBackfill(a.ID), tick.IsBackfill(b.ID); first != second {
		if first {
			return 1
		}
		return -1
	}
	return ByTime(a, b)
}

// byPriority orders the first ticks of lanes by which begins first: as ByTurn, but those of a lower Priority
// before others.
func byPriority(a, b *Lane) bool {
	first, second := a.Line.Ticks[0], b.Line.Ticks[0]
	if x, y := first.Priority, second.Priority; x != y && tick.IsBackfill(first.ID) == tick.IsBackfill(second.ID) {
		return x < y
	}
	return ByTurn(first, second) < 0
}

// Line is a sorted list of ticks. Ticks are usually added at its end and removed at
// its front.
type Line struct {
	Order func(a, b *Tick) int
	Ticks []*Tick
}

// Len returns how many ticks are in the line.
func (l Line) Len() int { return len(l.Ticks) }

// At returns a tick as a step knows it.
func (l Line) At(i int) tick.Waiting { return l.Ticks[i].Waiting }

// Add adds a tick.
func (l *Line) Add(t *Tick) {
	i, _ := slices.BinarySearchFunc(l.Ticks, t, l.Order)
	l.Ticks = slices.Insert(l.Ticks, i, t)
}

// Remove removes a tick, if it is in the line.
func (l *Line) Remove(t *Tick) {
	switch i, ok := slices.BinarySearchFunc(l.Ticks, t, l.Order); {
	case !ok:
	case i == 0:
		l.Ticks[0] = nil
		l.Ticks = l.Ticks[1:]
	default:
		l.Ticks = slices.Delete(l.Ticks, i, i+1)
	}
}
