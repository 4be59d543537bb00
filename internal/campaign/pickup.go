package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// When a worker dies, or is stopped, the keys it owns are to be picked up by
// those who wait in line for them. How fast that must be depends on what else
// happened, between the worker's end and the next owner's claim:
//
//   - nothing: TTL + 1 s. Other workers may die, leases of others be revoked,
//     keys be deleted and etcd be compacted meanwhile, as long as it is not one
//     that waits for the key.
//   - etcd lost its leader, once, by a fault or by itself, and nothing else:
//     2 TTL + 4 s, since a new leader lets all leases run in full again. If the leader
//     was stopped rather than killed, a third of a TTL more: its connections stay, so
//     that the watch of the first in line may be deaf.
//   - anything that disturbs the waiters or the majority: a fault of a member
//     that does not lead, loss of the majority, a second loss of the leader, a
//     waiter that was killed, stopped, had its lease revoked or its links cut, or
//     links of the dead worker that were cut, in which a renewal may have been held
//     back. Then no bound counts from the death; but 2 TTL + 4 s after the last
//     such disturbance is over the key must have an owner all the same.
//
// The time for which this program itself stalled between the worker's end and the next
// owner's claim is added to each bound.
//
// A fault that could not be made counts as one that was: it may have been made in
// part, or the reply was lost. A pick-up is not measured if nobody waited in line
// for all of the time, or if the worker was resumed before, and could go on as
// the owner.

func plainBound(ttl time.Duration) time.Duration         { return ttl + time.Second }
func leaderBound(ttl time.Duration) time.Duration        { return 2*ttl + 4*time.Second }
func stoppedLeaderBound(ttl time.Duration) time.Duration { return leaderBound(ttl) + ttl/3 }

// circumstances are what may be the matter with a pick-up.
type circumstances int

const (
	nothingElse circumstances = iota
	leaderLost
	disturbed
)

// A pickup is how a key of a worker that was killed or stopped got its next
// owner.
type pickup struct {
	key     string
	worker  string
	death   time.Time
	took    time.Duration // to the next owner; to the end of the run if there is none
	never   bool
	what    circumstances
	why     string        // what disturbed it
	stalled time.Duration // this program, up to the next owner's claim
	allowed time.Duration // since the death

	suspected bool // the next owner did not wait for the end of the lease
}

func (p pickup) late() bool { return p.took > p.allowed }

func (p pickup) String() string {
	took := p.took.Round(time.Millisecond).String()
	if p.never {
		took += " and not yet"
	}
	s := fmt.Sprintf("%s of %s: %s, allowed %v", p.key, p.worker, took, p.allowed.Round(time.Millisecond))
	if p.stalled > 0 {
		s += fmt.Sprintf(" with %v of stalls", p.stalled.Round(time.Millisecond))
	}
	if p.why != "" {
		s += " (" + p.why + ")"
	}
	return s
}

// findPickups returns all that can be measured, in the order of time.
func findPickups(h *ownership, faults []*fault, ttl time.Duration, end time.Time) []pickup {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []pickup
	for _, f := range faults {
		if f.failed || f.kind != killWorker && f.kind != stopWorker {
			continue
		}
		for key, terms := range h.terms {
			for i, t := range terms {
				if t.Owner != f.worker || !t.ended.IsZero() && !t.ended.After(f.from) || f.kind == stopWorker && t.begun.After(f.to) {
					continue
				}
				p := pickup{key: key, worker: f.worker, death: f.from, suspected: t.suspected, never: i+1 == len(terms)}
				at := end
				if !p.never {
					at = terms[i+1].begun
				}
				p.took = at.Sub(f.from)
				p.judge(h, faults, ttl, at)
				if (p.never || terms[i+1].Owner != f.worker) && p.measured(h, f, at) {
					found = append(found, p)
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b pickup) int {
		return cmp.Or(a.death.Compare(b.death), strings.Compare(a.key, b.key))
	})
	return found
}

// measured reports whether the worker can't have gone on before the key got its next owner or
// the time for that was over, and whether somebody else waited for the key from the death until then.
func (p *pickup) measured(h *ownership, f *fault, at time.Time) bool {
	if deadline := p.death.Add(p.allowed); deadline.Before(at) {
		at = deadline
	}
	if f.kind == stopWorker && !f.to.IsZero() && f.to.Before(at) {
		return false
	}
	return slices.ContainsFunc(h.places[keyspace.Digest(p.key)], func(w *place) bool {
		return w.owner != f.worker && !w.from.After(f.from) && w.standsAt(at)
	})
}

// standsAt reports whether the place has not been given up by then.
func (p *place) standsAt(at time.Time) bool { return p.to.IsZero() || !p.to.Before(at) }

// judge says what else happened up to the next owner's claim, and how long the
// pick-up may therefore take.
func (p *pickup) judge(h *ownership, faults []*fault, ttl time.Duration, at time.Time) {
	var elections []time.Time
	for _, e := range h.elections {
		if e.After(p.death) && !e.After(at) {
			elections = append(elections, e)
		}
	}
	bound := plainBound(ttl)
	if len(elections) > 0 {
		p.what, p.why, bound = leaderLost, "a new leader", leaderBound(ttl)
	}
	for _, f := range faults {
		if !f.kind.ofLeader() || !f.overlaps(p.death, at) {
			continue
		}
		p.what, p.why, bound = leaderLost, string(f.kind), max(bound, leaderBound(ttl))
		if f.kind == stopLeader {
			bound = stoppedLeaderBound(ttl)
		}
	}
	p.stalled = h.stalls.within(p.death, at)
	p.allowed = bound + p.stalled
	disturb := func(from, to time.Time, why string) {
		if from.After(p.death.Add(p.allowed)) || to.IsZero() {
			return
		}
		p.what, p.why = disturbed, why
		p.allowed = max(p.allowed, to.Sub(p.death)+leaderBound(ttl)+p.stalled)
	}
	// By their beginnings, so that each may allow for the next.
	for _, f := range faults {
		if !f.overlaps(p.death, at) || f.worker == p.worker && f.from.Equal(p.death) {
			continue
		}
		if why := h.disturbs(f, p, at); why != "" {
			disturb(f.from, f.to, why)
		}
	}
	if len(elections) > 1 {
		disturb(elections[0], elections[len(elections)-1], "several new leaders")
	}
}

// overlaps reports whether a fault, or what it takes to settle after it, lay in
// the time.
func (f *fault) overlaps(from, to time.Time) bool {
	return !f.from.After(to) && (f.to.IsZero() || !f.to.Add(settling).Before(from))
}

// disturbs says how a fault concerns those that wait for the key, if it does.
func (h *ownership) disturbs(f *fault, p *pickup, at time.Time) string {
	why := strings.TrimSpace(fmt.Sprintf("%s %s", f.kind, f.worker))
	switch {
	case f.kind.ofLeader():
		return "" // dealt with
	case f.kind.ofMembers(), f.kind.ofLinks() && slotOf(f.worker) == slotOf(p.worker):
		return why
	case f.worker == "":
		return ""
	}
	for _, w := range h.places[keyspace.Digest(p.key)] {
		same := w.owner == f.worker || f.kind.ofLinks() && slotOf(w.owner) == slotOf(f.worker)
		if same && w.owner != p.worker && !w.from.After(at) && w.standsAt(p.death) {
			return why + ", which waited"
		}
	}
	return ""
}

// slotOf returns the part of a worker's name that it shares with the workers
// before and after it, which use the same links.
func slotOf(worker string) string {
	slot, _, _ := strings.Cut(worker, ".")
	return slot
}

// suspicionMedian bounds the median of pick-ups from suspected holders. Each takes 450 ms, or 1.8 s
// if the holder was dead before it was ever asked, and what a busy machine adds.
const suspicionMedian = 3 * time.Second

// fromSuspected reports whether the key was taken from a suspected holder while nothing else
// was wrong.
func (p pickup) fromSuspected() bool { return p.suspected && p.what == nothingElse }

// slowSuspicion reports whether suspicions take long.
func slowSuspicion(pickups []pickup) bool {
	const enough = 10 // fewer have no median to speak of
	var took []time.Duration
	for _, p := range pickups {
		if p.fromSuspected() {
			took = append(took, p.took-p.stalled)
		}
	}
	slices.Sort(took)
	return len(took) >= enough && took[len(took)/2] > suspicionMedian
}
