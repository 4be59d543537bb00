package webui

import (
	"fmt"
	"html/template"
	"sync"
	"time"
)

// mostTroubles is how many findings the first page shows. The others are on the page Health.
const mostTroubles = 12

// sightings are when this page first saw the findings of the last examination.
type sightings struct {
	mu    sync.Mutex
	first map[string]time.Time
}

// date tells when findings were first seen, and forgets those that are not there any more.
func (s *sightings) date(found []finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, seen := time.Now(), make(map[string]time.Time, len(found))
	for i := range found {
		// The detail and the commands have numbers and names that change.
		id := found[i].Check + "\x00" + string(found[i].Level) + "\x00" + found[i].Remedy
		at, ok := s.first[id]
		if !ok {
			at = now
		}
		found[i].Since, seen[id] = at, at
	}
	s.first = seen
}

// attention is what the first page shows before all else: what a person has to look at.
type attention struct {
	States   []state
	Troubles []finding
	More     int // troubles that are not shown
	Fresh    freshness
	Known    bool // etcd was examined
}

// state is one of the things that all depends on.
type state struct {
	Name, Class, Text string
	Page              template.URL
}

// attention returns what the examination of etcd has found, as far as the user may view it.
func (q *request) attention(claims summary) attention {
	a := attention{States: []state{pageState(claims)}}
	if !q.can(Operation{Action: ActionView, Page: "health"}) {
		return a
	}
	e, fresh := q.examine()
	shown := e.visible(q)
	a.Known, a.Fresh, a.Troubles = !fresh.At.IsZero() && len(e.Members) > 0, fresh, shown.Troubles
	if a.Known {
		a.States = append([]state{membersState(e), spaceState(e)}, a.States...)
		for _, f := range shown.Well {
			if f.Check == "epoch" {
				a.States = append(a.States, state{"Epoch", "good", f.Detail, "health"})
			}
		}
	}
	if len(a.Troubles) > mostTroubles {
		a.Troubles, a.More = a.Troubles[:mostTroubles], len(a.Troubles)-mostTroubles
	}
	return a
}

// pageState is whether this page follows the claims.
func pageState(claims summary) state {
	switch {
	case claims.Err != nil:
		return state{"This page", "bad", "does not follow the claims", "health"}
	case claims.Reading:
		return state{"This page", "warn", "reads the claims", "health"}
	}
	return state{"This page", "good", "follows " + count(claims.Held, "claim", "claims"), "health"}
}

// membersState is how many members answer.
func membersState(e examined) state {
	silent := 0
	for _, m := range e.Members {
		if m.Err != "" {
			silent++
		}
	}
	s := state{"etcd", "good", fmt.Sprintf("%d of %s", len(e.Members)-silent, count(len(e.Members), "member answers", "members answer")), "health"}
	switch {
	case 2*silent >= len(e.Members):
		s.Class = "bad"
	case silent > 0:
		s.Class = "warn"
	}
	return s
}

// spaceState is how full the fullest member is.
func spaceState(e examined) state {
	s := state{"Space", "", "not known", "health"}
	most := int64(-1)
	for _, m := range e.Members {
		if m.Err == "" && m.Quota > 0 {
			most = max(most, 100*m.Size/m.Quota)
		}
	}
	if most >= 0 {
		s.Class, s.Text = "good", fmt.Sprintf("%d %% of the quota", most)
	}
	switch {
	case most >= 95:
		s.Class = "bad"
	case most >= 80:
		s.Class = "warn"
	}
	return s
}
