package simulation

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/fencing"
)

// line is who waits for a key, in the order in which they came.
type line struct {
	key    string
	places []place

	first    string    // in line while the key is free, or ""
	instance string    // of that
	since    time.Time // when that began
}

// place is one in line, named by its claim.
type place struct {
	claim    string
	instance string
	shared   bool
	left     bool // before a restore that brought it back: nobody waits in it

	preference int
	since      time.Time
}

// of returns where in line a claim stands, or -1.
func (l *line) of(claim string) int {
	return slices.IndexFunc(l.places, func(p place) bool { return p.claim == claim })
}

// leaves returns whose place in a line was deleted.
func leaves(c change) (claim string, ok bool) {
	place, ok := strings.CutPrefix(c.key, prefix+"wait/")
	_, claim, _ = strings.Cut(place, "/")
	return strings.TrimPrefix(claim, "~"), ok && c.deleted
}

// place goes through a change of a place in line.
func (r *replay) place(c change) {
	whose, claim, _ := strings.Cut(strings.TrimPrefix(c.key, prefix+"wait/"), "/")
	claim, shared := strings.CutPrefix(claim, "~")
	l := r.lines[whose]
	if l == nil {
		return // of no key that is wanted often
	}
	at := l.of(claim)
	switch {
	case c.deleted && at >= 0:
		l.places = slices.Delete(l.places, at, at+1)
	case c.deleted:
	case at >= 0:
		r.fault("a place in line was put twice: %v", c)
	default:
		var h holder
		_ = json.Unmarshal([]byte(c.value), &h)
		l.places = append(l.places, place{claim: claim, instance: h.Instance, shared: shared, preference: h.Preference, since: c.at})
	}
	l.look(r, c.at)
}

// inTurn checks that nobody was passed who stood before a new owner: first come,
// first served.
func (r *replay) inTurn(c change, h holder, token fencing.Token) {
	l := r.lineFor(token.Key)
	if l == nil {
		return
	}
	before := l.of(h.Claim)
	if before < 0 { // not in line
		before = len(l.places)
	}
	if len(l.places) > 0 {
		r.t.w.count("judged: whose turn it was")
	}
	if old, held := r.own[c.key]; held {
		if was, _ := old.holder(); was.Instance == h.Instance && l.of(h.Claim) < 0 {
			return // superseded by its own process, which passes nobody
		}
	}
	sharing := strings.HasPrefix(c.key, sharedPrefix) // which passes others of its kind
	passed := slices.DeleteFunc(slices.Clone(l.places[:before]), func(p place) bool { return p.left || sharing && p.shared })
	if len(passed) > 0 {
		r.fault("%d in line were passed: %v; they are %v", len(passed), c, passed)
	}
}

// broughtBack marks the places whose callers have left them at times that a restore has
// undone. Those behind may know that they left.
func (l *line) broughtBack(left map[string]bool) {
	for i, p := range l.places {
		l.places[i].left = left[p.claim]
	}
}

// lookAt looks at the line for a claim's key that has changed.
func (r *replay) lookAt(c change) {
	if l := r.lineFor(strings.TrimPrefix(c.key, prefix+"own/")); l != nil {
		l.look(r, c.at)
	}
}

// turnTakes is how long a free key may be left to the first in line, by whose
// machine nothing is wrong: it watches for that.
const turnTakes = 5 * time.Second

// judgeTurn checks how long the key was left to the first in line.
func (l *line) judgeTurn(r *replay, now time.Time) {
	p, took := r.procs[l.instance], now.Sub(l.since)
	if p == nil || !p.gone.IsZero() && !p.gone.After(now) || r.t.w.ledger.full(l.since, now) || !r.t.w.ledger.hearing(p, l.since, now) {
		return
	}
	limit := turnTakes
	if !r.t.w.ledger.healthy(p, l.since, now) {
		// Whose watches are deaf asks when it renews.
		limit = time.Second + p.longest()/3 + p.longest()/6
		r.t.w.count(countDeafTurns)
	}
	if took > limit {
		r.fault("%s stood first in line for %q, which was free, from %s for %v", p.name, l.key, clockOf(l.since), took)
	}
}

// look checks, when anything about a line has changed, that the first in it was
// not left waiting before that.
func (l *line) look(r *replay, now time.Time) {
	free := len(l.places) > 0 && !r.busy(l)
	first := ""
	if free {
		first = l.places[0].claim
	}
	if first == l.first {
		return
	}
	if l.first != "" {
		l.judgeTurn(r, now)
	}
	l.first, l.since = first, now
	if free {
		l.instance = l.places[0].instance
	}
}
