package sched

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/internal/lanes"
	"github.com/etcdclaims/claims/internal/tick"
)

// limits finds slots for runs of this process. The state belongs to the goroutine that begins ticks.
type limits struct {
	*group
	lanes  *lanes.Lanes
	taking map[string]bool // the slots that attempts are about to take, by key
}

// slots returns a free slot of each limit of the job, and the number of each by the name of the limit. Full is what
// the lane has to wait for, as far as this process sees.
func (l *limits) slots(j Job, lane *lanes.Lane) (slots []tick.Slot, numbers map[string]int, full lanes.Slot) {
	if len(j.Limits) == 0 {
		return nil, nil, full
	}
	numbers = make(map[string]int)
	for _, limit := range slices.Sorted(maps.Keys(j.Limits)) {
		needs := lanes.Slot{Limit: l.keys.Slots(limit), Below: j.Limits[limit]}
		if l.lanes.IsBehind(lane, needs) {
			return nil, nil, needs
		}
		n := needs.Below - 1 // the greatest number first: jobs with a lower limit cannot use it
		for ; n >= 0; n-- {
			if s, free := l.slot(needs.Limit + strconv.Itoa(n)); free && !l.taking[s.Key] {
				slots = append(slots, s)
				break
			}
		}
		if n < 0 {
			return nil, nil, needs
		}
		numbers[limit] = n
	}
	return slots, numbers, full
}

// slot returns a slot as this process sees it. One whose value cannot be read is not free.
func (g *group) slot(key string) (s tick.Slot, free bool) {
	is := g.view.Get(key)
	switch s = (tick.Slot{Key: key}); {
	case is.Gone:
		return s, true
	case is.Slot == nil:
		return s, false
	}
	s.Rev, s.Value, s.Last = is.Rev, is.Value, *is.Slot
	run := g.view.Get(s.Last.Record(g.keys))
	return s, run.Gone || run.Rev != is.Rev
}

// stillFree reports whether the slots are free as they were.
func (g *group) stillFree(slots []tick.Slot) bool {
	return !slices.ContainsFunc(slots, func(was tick.Slot) bool {
		is, free := g.slot(was.Key)
		return !free || is != was
	})
}

// take notes that an attempt is about to take slots.
func (l *limits) take(slots []tick.Slot) {
	for _, s := range slots {
		l.taking[s.Key] = true
	}
}

// taken notes that the attempt has ended. Those that wait look for a slot anew: it may not have begun.
func (l *limits) taken(slots []tick.Slot) {
	for _, s := range slots {
		delete(l.taking, s.Key)
		l.lanes.Free(dirOfSlot(s.Key))
	}
}

// dirOfSlot returns the directory of a slot, by which lanes wait for it.
func dirOfSlot(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }

// hasSlots notes that a run has taken its slots, at the revision.
func (g *group) hasSlots(r run, rev int64) {
	limits, keys := g.keys.SlotsOf(r)
	for i, key := range keys {
		g.view.Put(key, tick.Encode(r.Holder(limits[i])), rev)
	}
}

// removed notes that the record of a run, put at the revision began, was deleted with its slots at rev.
func (g *group) removed(r run, began, rev int64) {
	_, keys := g.keys.SlotsOf(r)
	for _, key := range keys {
		if g.view.Get(key).Rev == began {
			g.view.Remove(key, rev)
		}
	}
	g.view.Remove(g.keys.Run(r.Job, r.ID), rev)
}
