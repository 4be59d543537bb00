package webui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/doctor"
)

// overviewPage is the first page.
type overviewPage struct {
	summary
	Attention     attention
	Waiting       number // callers in line
	Troubled      number // work that is orphaned or dead
	TroubleState  work.State
	Jobs, Overdue number
	DeadLetters   number
	Late          number // sessions whose renewal is late
	Sparks        struct{ Claims, Waiting, Dead, Late spark }
	HasRefusals   bool
	Refused       int
}

// Unread returns why a number cannot be read: one reason, of the first of them.
func (p overviewPage) Unread() error {
	return cmp.Or(p.Waiting.Err, p.Troubled.Err, p.Jobs.Err, p.DeadLetters.Err, p.Late.Err)
}

// attention is what the first page shows before all else: what a person has to look at.
type attention struct {
	States   []state
	Troubles []finding
	More     int // troubles that are not shown
	Notes    int // such as of what was not examined: Health shows them
	Hidden   int // findings about pages that the user may not view
	Fresh    freshness
	Known    bool // etcd was examined
}

// mostTroubles is how many findings the first page shows. The others are on the page Health.
const mostTroubles = 12

// number is a number as it was read.
type number struct {
	N int
	freshness
	partial bool // not all was read
}

// String returns the number, with "?" if it could not be read again, and "+" if it is partial.
func (n number) String() string {
	switch {
	case n.Err != nil && n.At.IsZero():
		return "?"
	case n.Err != nil:
		return digits(n.N) + "?"
	case n.partial:
		return digits(n.N) + "+"
	}
	return digits(n.N)
}

// Noun returns what the number counts, in the singular if it is certainly one.
func (n number) Noun(one, many string) string {
	if n.String() == "1" {
		return one
	}
	return many
}

func (q *request) overview() (any, error) {
	attention := q.attention() // first: it names the members also in an outage
	p := overviewPage{summary: q.useClaims("").summary(), TroubleState: work.StateOrphaned}
	lines, fresh := q.allLines()
	p.Waiting = number{freshness: fresh, partial: len(lines) == mostRows}
	p.Waiting.N = lines.tally()
	states, fresh := q.workStates()
	p.Troubled = number{states.of[work.StateOrphaned] + states.of[work.StateDead], fresh, states.partial}
	if states.of[work.StateOrphaned] == 0 {
		p.TroubleState = work.StateDead
	}
	jobs, fresh := q.jobs()
	p.Overdue = number{freshness: fresh, partial: len(jobs.jobs) == mostJobs || len(jobs.groups) >= mostGroups}
	for _, g := range jobs.groups {
		if g.Err != "" && p.Overdue.Err == nil {
			p.Overdue.Err = errors.New(g.Err)
		}
		p.Overdue.N += g.Overdue
	}
	p.Jobs = p.Overdue
	p.Jobs.N = len(jobs.jobs)
	queues, fresh := q.allQueues()
	p.DeadLetters = number{freshness: fresh, partial: len(queues) == mostQueues}
	for _, row := range queues {
		if row.Err != "" && p.DeadLetters.Err == nil {
			p.DeadLetters.Err = fmt.Errorf("queue %q: %s", row.Name, row.Err)
		}
	}
	p.DeadLetters.N = queues.tally()
	sessions, fresh := q.allSessions()
	p.Late = number{sessions.tally(), fresh, len(sessions) == mostSessions}
	q.shows.topics[samplesTopic] = true
	now := time.Now()
	p.Sparks.Claims, p.Sparks.Waiting = q.h.samples.spark(sampledClaims, now), q.h.samples.spark(sampledWaiting, now)
	p.Sparks.Dead, p.Sparks.Late = q.h.samples.spark(sampledDead, now), q.h.samples.spark(sampledLate, now)
	attention.States = append(attention.States, pageState(p.Held, p.Reading, p.summary.Err))
	p.Attention = attention
	p.HasRefusals = q.h.cfg.Refusals != nil
	p.Refused = q.refused()
	return p, nil
}

// attention returns what the examination of etcd has found, as far as the user may view it.
func (q *request) attention() (a attention) {
	if !q.can(Operation{Action: ActionView, Page: "health"}) {
		return a
	}
	if members, _ := q.members(); len(members) > 0 {
		a.States = append([]state{membersState(members), spaceState(members)}, a.States...)
	}
	found, fresh := q.examine()
	shown := found.visible(q)
	a.Known, a.Fresh = found.Any(), fresh
	a.Troubles = slices.DeleteFunc(slices.Clone(shown.Troubles), func(f finding) bool { return f.Level == doctor.Note })
	a.Notes, a.Hidden = len(shown.Troubles)-len(a.Troubles), shown.Hidden
	if a.Known {
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

// counted is how many of the first records of work are in each state.
type counted struct {
	of      map[work.State]int
	partial bool // there are more records
}

// workStates counts the first records of work by their state.
func (q *request) workStates() (counted, freshness) {
	return snapshotOf(q, "work states", 10*time.Second, func(ctx context.Context, h *Handler) (counted, error) {
		states, n := counted{of: make(map[work.State]int)}, 0
		for r, err := range h.works.Records(ctx, "") {
			if err != nil {
				return counted{}, err
			}
			if n++; n > mostScanned {
				states.partial = true
				break
			}
			states.of[r.State]++
		}
		return states, nil
	})
}

// state is one of the things that all depends on.
type state struct {
	Name, Class, Text string
	Page              template.URL
}

// pageState is whether this page follows the claims.
func pageState(held int, reading bool, err error) state {
	switch {
	case err != nil:
		return state{"This page", "bad", "does not follow the claims", "health"}
	case reading:
		return state{"This page", "warn", "reads the claims", "health"}
	}
	return state{"This page", "good", "claims followed: " + digits(held), "health"}
}

// membersState is how many members answer.
func membersState(members []doctor.Member) state {
	silent := 0
	for _, m := range members {
		if m.Err != "" {
			silent++
		}
	}
	s := state{"etcd", "good", fmt.Sprintf("members that answer: %d of %d", len(members)-silent, len(members)), "health"}
	switch {
	case 2*silent >= len(members):
		s.Class = "bad"
	case silent > 0:
		s.Class = "warn"
	}
	return s
}

// spaceState is how full the fullest member is.
func spaceState(members []doctor.Member) state {
	s := state{"Space", "", "not known", "health"}
	most := int64(-1)
	for _, m := range members {
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
