package lanes

import (
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/priority"
)

// Lane has the ticks that need the same claim.
type Lane struct {
	Claim string
	Line  Line
	Busy  int // the attempts and runs of this process
	// Ahead has the ticks whose runs were recorded when an attempt was last made. If
	// such a run was lost, its tick waits again, and begins before later ones.
	Ahead []*Tick
	At    time.Time // when to try again, by the monotonic clock
	Rests bool      // because of the first tick's back-off, not because the claim was held
	Try   int
	Needs Slot // the one that was not free when it was last tried
}

// A Slot says which slots a lane can use: those of Limit with a number below Below. The zero value is for a
// lane that needs none.
type Slot struct {
	Limit string // the directory of its slots
	Below int
}

// unrest forgets the back-off of the first tick: another tick may be the first.
func (l *Lane) unrest() {
	if l.Rests {
		l.At, l.Rests = time.Time{}, false
	}
}

// Lanes has all lanes of a process. Its methods are not safe for concurrent use.
type Lanes struct {
	byClaim map[string]*Lane
	where   map[string]place                          // the places of ticks, by their keys
	next    *priority.Queue[*Lane]                    // those that can be tried, by their first tick
	later   *priority.Queue[*Lane]                    // those whose claims were held, by when to try again
	parked  map[*Lane]bool                            // those whose ticks this process cannot begin
	full    map[string]map[int]*priority.Queue[*Lane] // those that wait for a slot, by Lane.Needs, and by their first tick
}

type place struct {
	lane *Lane
	tick *Tick
}

// New returns no lanes.
func New() *Lanes {
	return &Lanes{
		byClaim: make(map[string]*Lane), where: make(map[string]place), parked: make(map[*Lane]bool),
		full:  make(map[string]map[int]*priority.Queue[*Lane]),
		next:  priority.New(byPriority),
		later: priority.New(func(a, b *Lane) bool { return a.At.Before(b.At) }),
	}
}

// Of returns the lane of a claim.
func (l *Lanes) Of(claim string) *Lane {
	lane := l.byClaim[claim]
	if lane == nil {
		lane = &Lane{Claim: claim, Line: Line{Order: ByTurn}}
		l.byClaim[claim] = lane
	}
	return lane
}

// Len returns how many lanes and ticks there are.
func (l *Lanes) Len() int {
	return len(l.byClaim) + l.later.Len() + l.next.Len() + len(l.where) + len(l.full)
}

// Add adds a tick that needs the claim.
func (l *Lanes) Add(claim string, t *Tick) {
	lane := l.Of(claim)
	l.Lift(lane) // before its order changes
	lane.unrest()
	lane.Line.Add(t)
	l.where[t.Key] = place{lane, t}
	l.Place(lane)
}

// Remove removes the tick with the key.
func (l *Lanes) Remove(key string) {
	at, ok := l.where[key]
	if !ok {
		return
	}
	delete(l.where, key)
	l.Lift(at.lane)
	at.lane.unrest()
	at.lane.Line.Remove(at.tick)
	l.Place(at.lane)
}

// Lift removes a lane from its queue.
func (l *Lanes) Lift(lane *Lane) {
	l.next.Drop(lane)
	l.later.Drop(lane)
	delete(l.parked, lane)
	limit := l.full[lane.Needs.Limit]
	if q := limit[lane.Needs.Below]; q != nil {
		if q.Drop(lane); q.Len() == 0 {
			delete(limit, lane.Needs.Below)
		}
		if len(limit) == 0 {
			delete(l.full, lane.Needs.Limit)
		}
	}
}

// Place moves a lane to its queue. One without ticks is forgotten.
func (l *Lanes) Place(lane *Lane) {
	l.Lift(lane)
	switch {
	case lane.Busy > 0:
	case len(lane.Line.Ticks) == 0:
		delete(l.byClaim, lane.Claim)
		l.Free(lane.Needs.Limit)
	case lane.At.After(clock.Mono()):
		l.later.Set(lane)
	default:
		l.next.Set(lane)
	}
}

// Park lets a lane that was lifted wait until Unpark, or until its ticks change: this process
// cannot begin any of them.
func (l *Lanes) Park(lane *Lane) { l.parked[lane] = true }

// Unpark lets all lanes that were parked be tried, and the first of those that need the same slot.
func (l *Lanes) Unpark() {
	for lane := range l.parked {
		l.Place(lane)
	}
	for limit := range l.full {
		l.Free(limit)
	}
}

// Wait lets a lane that was lifted wait until Free, or until its ticks change: no such slot is free.
func (l *Lanes) Wait(lane *Lane, needs Slot) {
	limit := l.full[needs.Limit]
	if limit == nil {
		limit = make(map[int]*priority.Queue[*Lane])
		l.full[needs.Limit] = limit
	}
	if limit[needs.Below] == nil {
		limit[needs.Below] = priority.New(byPriority)
	}
	lane.Needs = needs
	limit[needs.Below].Set(lane)
}

// IsBehind reports whether a lane waits for such a slot whose first tick begins before that of this one. Then
// this one need not look for a slot.
func (l *Lanes) IsBehind(lane *Lane, needs Slot) bool {
	q := l.full[needs.Limit][needs.Below]
	if q == nil {
		return false
	}
	first, _ := q.First()
	return byPriority(first, lane)
}

// Free lets the first lane be tried of those that need the same slot of the limit. Whoever tries it calls Free again,
// unless it waits for that slot again.
func (l *Lanes) Free(limit string) {
	for _, q := range l.full[limit] {
		first, _ := q.First()
		l.Place(first)
	}
}

// Retry lets lanes be tried at once: those of claims that are free, or all.
func (l *Lanes) Retry(freed []string, all bool) {
	if all {
		for _, lane := range l.byClaim {
			lane.At, lane.Try = time.Time{}, 0
			l.Place(lane)
		}
		return
	}
	for _, claim := range freed {
		if lane := l.byClaim[claim]; lane != nil {
			lane.At = time.Time{}
			l.Place(lane)
		}
	}
}

// Prioritize changes the priorities of the ticks that wait, by their jobs.
func (l *Lanes) Prioritize(jobs map[string]int) {
	for _, at := range l.where {
		if p, ok := jobs[at.tick.Job]; ok && p != at.tick.Priority {
			l.Lift(at.lane) // before its order changes
			at.tick.Priority = p
			l.Place(at.lane)
		}
	}
}

// Next returns the lane to try first, or nil.
func (l *Lanes) Next() *Lane {
	lane, _ := l.next.First()
	return lane
}

// Wake lets the lanes be tried whose time has come.
func (l *Lanes) Wake(now time.Time) {
	for _, lane := range l.later.TakeWhile(l.later.Len(), func(lane *Lane) bool { return !lane.At.After(now) }) {
		l.Place(lane)
	}
}

// Soonest returns the time until the next lane can be tried that waits for one, up to most.
func (l *Lanes) Soonest(now time.Time, most time.Duration) time.Duration {
	if lane, ok := l.later.First(); ok {
		return min(most, max(lane.At.Sub(now), 0))
	}
	return most
}
