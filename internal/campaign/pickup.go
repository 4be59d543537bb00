package main

import (
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
func findPickups(h *ownership, faults []fault, ttl time.Duration, end time.Time) []pickup {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []pickup
	for _, f := range faults {
		if f.failed || f.kind != killWorker && f.kind != stopWorker {
			continue
		}
		for key, terms := range h.terms {
			for i, t := range terms {
				if t.owner != f.worker || !t.ended.IsZero() && !t.ended.After(f.from) || f.kind == stopWorker && t.begun.After(f.to) {
					continue
				}
				var next *term
				if i+1 < len(terms) {
					next = terms[i+1]
				}
				if p, ok := h.pickup(f, key, next, faults, ttl, end); ok {
					p.suspected = t.suspected
					found = append(found, p)
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b pickup) int {
		if c := a.death.Compare(b.death); c != 0 {
			return c
		}
		return strings.Compare(a.key, b.key)
	})
	return found
}

func (h *ownership) pickup(f fault, key string, next *term, faults []fault, ttl time.Duration, end time.Time) (pickup, bool) {
	p := pickup{key: key, worker: f.worker, death: f.from}
	at := end
	if next != nil {
		at = next.begun
	}
	p.took, p.never = at.Sub(f.from), next == nil
	p.judge(h, faults, ttl, at)
	deadline := p.death.Add(p.allowed)
	if f.kind == stopWorker && !f.to.IsZero() && f.to.Before(at) && f.to.Before(deadline) {
		return p, false // it may have gone on
	}
	if next != nil && next.owner == f.worker {
		return p, false
	}
	needed := at
	if deadline.Before(needed) {
		needed = deadline
	}
	return p, h.waited(key, f, needed)
}

// waited reports whether somebody else waited for the key from the death on until then.
func (h *ownership) waited(key string, f fault, until time.Time) bool {
	return slices.ContainsFunc(h.places[keyspace.Digest(key)], func(w *place) bool {
		return w.owner != f.worker && !w.from.After(f.from) && w.standsAt(until)
	})
}

// standsAt reports whether the place has not been given up by then.
func (p *place) standsAt(at time.Time) bool { return p.to.IsZero() || !p.to.Before(at) }

// judge says what else happened up to the next owner's claim, and how long the
// pick-up may therefore take.
func (p *pickup) judge(h *ownership, faults []fault, ttl time.Duration, at time.Time) {
	elections := h.elections(p.death, at)
	p.allowed = plainBound(ttl)
	if len(elections) > 0 {
		p.what, p.allowed, p.why = leaderLost, leaderBound(ttl), "a new leader"
	}
	for _, f := range faults {
		if !f.kind.ofLeader() || !f.overlaps(p.death, at) {
			continue
		}
		bound := leaderBound(ttl)
		if f.kind == stopLeader {
			bound = stoppedLeaderBound(ttl)
		}
		p.what, p.allowed, p.why = leaderLost, max(p.allowed, bound), string(f.kind)
	}
	p.stalled = h.stalls.within(p.death, at)
	deadline := p.death.Add(p.allowed + p.stalled)
	disturb := func(from, to time.Time, why string) {
		if from.After(deadline) || to.IsZero() {
			return
		}
		p.what, p.why = disturbed, why
		if after := to.Add(leaderBound(ttl) + p.stalled); after.After(deadline) {
			deadline = after
		}
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
	p.allowed = deadline.Sub(p.death)
}

// overlaps reports whether a fault, or what it takes to settle after it, lay in
// the time.
func (f fault) overlaps(from, to time.Time) bool {
	return !f.from.After(to) && (f.to.IsZero() || !f.to.Add(settling).Before(from))
}

// disturbs says how a fault concerns those that wait for the key, if it does.
func (h *ownership) disturbs(f fault, p *pickup, at time.Time) string {
	why := strings.TrimSpace(fmt.Sprintf("%s %s", f.kind, f.worker))
	switch {
	case f.kind.ofLeader():
		return "" // dealt with
	case f.kind.ofMembers():
		return why
	case f.worker == "":
		return ""
	}
	links := f.kind == cutLinks || f.kind == halfCutLinks || f.kind == breakLinks
	if links && slotOf(f.worker) == slotOf(p.worker) {
		return why
	}
	for _, w := range h.places[keyspace.Digest(p.key)] {
		same := w.owner == f.worker || links && slotOf(w.owner) == slotOf(f.worker)
		if same && w.owner != p.worker && !w.from.After(at) && (w.to.IsZero() || !w.to.Before(p.death)) {
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

// elections returns when new terms of etcd's leaders were heard of.
func (h *ownership) elections(from, to time.Time) []time.Time {
	var times []time.Time
	for i, r := range h.raft {
		if i > 0 && r.at.After(from) && !r.at.After(to) {
			times = append(times, r.at)
		}
	}
	return times
}
