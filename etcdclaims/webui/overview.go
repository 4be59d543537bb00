package webui

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// overviewPage is the first page.
type overviewPage struct {
	summary
	Waiting       int // callers in line
	Troubled      int // work that is orphaned or dead
	TroubleState  etcdclaims.State
	Jobs, Overdue int
	DeadLetters   int
	HasRefusals   bool
	Refused       int
}

func (q *request) overview() (any, error) {
	p := overviewPage{summary: q.useClaims("").summary(), TroubleState: etcdclaims.StateOrphaned}
	lines, _ := q.allLines()
	for _, l := range lines {
		p.Waiting += l.Waiting
	}
	states, _ := q.workStates()
	p.Troubled = states[etcdclaims.StateOrphaned] + states[etcdclaims.StateDead]
	if states[etcdclaims.StateOrphaned] == 0 {
		p.TroubleState = etcdclaims.StateDead
	}
	jobs, _ := q.jobs()
	p.Jobs = len(jobs.jobs)
	for _, g := range jobs.groups {
		p.Overdue += g.Overdue
	}
	queues, _ := q.allQueues()
	for _, row := range queues {
		p.DeadLetters += row.Dead
	}
	p.HasRefusals = q.h.cfg.Refusals != nil
	p.Refused = q.refused()
	return p, nil
}

// workStates counts the first records of work by their state.
func (q *request) workStates() (map[etcdclaims.State]int, Fresh) {
	return snapshotOf(q, "work states", 10*time.Second, func(ctx context.Context, h *Handler) (map[etcdclaims.State]int, error) {
		states, n := make(map[etcdclaims.State]int), 0
		for r, err := range h.claims.Records(ctx, "") {
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
