package simulation

import (
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// sight is one use of Client.Watch.
type sight struct {
	p      *process
	era    int
	events []etcdclaims.Event
	until  time.Time // it was listened to; zero if to the end
}

// observe follows claims by the client's own Watch.
func (p *process) observe() {
	for p.ctx.Err() == nil {
		s := &sight{p: p}
		p.w.trace.note(func(t *trace) {
			s.era = t.era
			t.sights = append(t.sights, s)
		})
		for ev, err := range p.client.Watch(p.ctx, "") {
			if err != nil {
				p.class("watch", err)
				break
			}
			same := false
			p.w.trace.note(func(t *trace) {
				if same = t.era == s.era; same {
					s.events = append(s.events, ev)
				}
			})
			if !same { // revisions are others now
				break
			}
		}
		p.w.trace.note(func(*trace) { s.until = time.Now() })
		p.pause(time.Second)
	}
}

// newsTakes is how long a change may take to be told, by a machine to which
// nothing happens.
const newsTakes = 5 * time.Second

// judge checks that a Watch told all there was, in order, other than in gaps
// that it owned up to, and nothing else.
func (s *sight) judge(r *replay) {
	var left []change // of claims, in this era, and not told of yet
	for _, c := range r.t.changes {
		if c.era == s.era && strings.HasPrefix(c.key, prefix+"own/") {
			left = append(left, c)
		}
	}
	cursor := int64(-1) // told up to; -1: not begun
	last := map[string]etcdclaims.Event{}
	for _, ev := range s.events {
		if ev.Kind == etcdclaims.Synced || ev.Kind == etcdclaims.Resynced {
			cursor = ev.Revision
			continue
		}
		s.follows(r, last, ev)
		if cursor < 0 || ev.Revision <= cursor {
			continue // what a read has found
		}
		for len(left) > 0 && left[0].rev <= cursor {
			left = left[1:]
		}
		for len(left) > 0 && left[0].rev < ev.Revision {
			r.fault("a Watch told of %q at revision %d, but not before of: %v", ev.Info.Key, ev.Revision, left[0])
			left = left[1:]
		}
		// Several keys can change at one revision: in any order.
		cursor = ev.Revision - 1
		i := slices.IndexFunc(left, func(c change) bool {
			return c.rev == ev.Revision && c.key == prefix+"own/"+ev.Info.Key && c.deleted == (ev.Kind == etcdclaims.Freed)
		})
		if i < 0 {
			r.fault("a Watch told what never was: %+v", ev)
		} else {
			left = slices.Delete(left, i, i+1)
		}
		if len(left) == 0 || left[0].rev > ev.Revision {
			cursor = ev.Revision
		}
	}
	for _, c := range left {
		due := c.at.Add(newsTakes)
		if cursor < 0 || c.rev <= cursor || !s.until.IsZero() && s.until.Before(due) || !r.t.w.ledger.healthy(s.p, c.at, due) {
			continue
		}
		r.fault("a Watch of %s, which was listened to until %s, never told of: %v", s.p.name, clockOf(s.until), c)
		return
	}
}

// follows checks that an event follows from the last one of its key.
func (s *sight) follows(r *replay, last map[string]etcdclaims.Event, ev etcdclaims.Event) {
	before, known := last[ev.Info.Key]
	last[ev.Info.Key] = ev
	switch {
	case ev.Kind == etcdclaims.Claimed && known && ev.Revision <= before.Revision,
		ev.Kind == etcdclaims.Freed && (!known || before.Kind != etcdclaims.Claimed || before.Info.Fence != ev.Info.Fence):
		r.fault("a Watch told: %+v, and then: %+v", before, ev)
	}
}
