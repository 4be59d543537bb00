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
	Waiting       int // callers in line
	Troubled      int // work that is orphaned or dead
	TroubleState  work.State
	Jobs, Overdue int
	DeadLetters   int
	HasRefusals   bool
	Refused       int

	LinesFresh, WorkFresh, JobsFresh, QueuesFresh freshness
}

// Unread returns why a number cannot be read: one reason, of the first of them.
func (p overviewPage) Unread() error {
	return cmp.Or(p.LinesFresh.Err, p.WorkFresh.Err, p.JobsFresh.Err, p.QueuesFresh.Err)
}

// asRead returns a number as it was read, with "?" if it could not be read again.
func asRead(n int, f freshness) string {
	switch {
	case f.Err == nil:
		return strconv.Itoa(n)
	case f.At.IsZero():
		return "?"
	}
	return strconv.Itoa(n) + "?"
}

func (q *request) overview() (any, error) {
	p := overviewPage{summary: q.useClaims("").summary(), TroubleState: work.StateOrphaned}
	lines, fresh := q.allLines()
	p.LinesFresh = fresh
	for _, l := range lines {
		p.Waiting += l.Waiting
	}
	states, fresh := q.workStates()
	p.WorkFresh = fresh
	p.Troubled = states[work.StateOrphaned] + states[work.StateDead]
	if states[work.StateOrphaned] == 0 {
		p.TroubleState = work.StateDead
	}
	jobs, fresh := q.jobs()
	p.JobsFresh = fresh
	p.Jobs = len(jobs.jobs)
	for _, g := range jobs.groups {
		if g.Err != "" && p.JobsFresh.Err == nil {
			p.JobsFresh.Err = errors.New(g.Err)
		}
		p.Overdue += g.Overdue
	}
	queues, fresh := q.allQueues()
	p.QueuesFresh = fresh
	for _, row := range queues {
		if row.Err != "" && p.QueuesFresh.Err == nil {
			p.QueuesFresh.Err = fmt.Errorf("queue %q: %s", row.Name, row.Err)
		}
		p.DeadLetters += row.Dead
	}
	p.HasRefusals = q.h.cfg.Refusals != nil
	p.Refused = q.refused()
	return p, nil
}

// workStates counts the first records of work by their state.
func (q *request) workStates() (map[work.State]int, freshness) {
	return snapshotOf(q, "work states", 10*time.Second, func(ctx context.Context, h *Handler) (map[work.State]int, error) {
		states, n := make(map[work.State]int), 0
		for r, err := range h.works.Records(ctx, "") {
			if err != nil {
				return nil, err
			}
			if n++; n > mostScanned {
				break
			}
			states[r.State]++
		}
		return states, nil
	})
}
