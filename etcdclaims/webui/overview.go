package webui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/work"
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
	HasRefusals   bool
	Refused       int
}

// Unread returns why a number cannot be read: one reason, of the first of them.
func (p overviewPage) Unread() error {
	return cmp.Or(p.Waiting.Err, p.Troubled.Err, p.Jobs.Err, p.DeadLetters.Err)
}

// attention is what the first page shows before all else: what a person has to look at.
type attention struct {
	States   []state
	Troubles []finding
	More     int // troubles that are not shown
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
		return strconv.Itoa(n.N) + "?"
	case n.partial:
		return strconv.Itoa(n.N) + "+"
	}
	return strconv.Itoa(n.N)
}

func (q *request) overview() (any, error) {
	attention := q.attention() // first: it names the members also in an outage
	p := overviewPage{summary: q.useClaims("").summary(), TroubleState: work.StateOrphaned}
	lines, fresh := q.allLines()
	p.Waiting = number{freshness: fresh, partial: len(lines) == mostRows}
	for _, l := range lines {
		p.Waiting.N += l.Waiting
	}
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
		p.DeadLetters.N += row.Dead
	}
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
	a.Known, a.Fresh, a.Troubles = found.Any(), fresh, shown.Troubles
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
