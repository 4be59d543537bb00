package sched

import (
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
)

// planner makes plans on goroutines of its own when that may take long: for schedules
// of other packages, whose ticks can only be counted one by one.
type planner struct {
	mu   sync.Mutex
	made []madePlan
	done chan struct{} // has an element when a plan was made
}

type madePlan struct {
	c    *jobState
	rev  int64 // of the mark that the plan was made for
	plan tick.Plan
}

// longAgo is the age of a mark from which on the planner counts the missed ticks.
const longAgo = time.Minute

func (p *planner) start(c *jobState, job Job, now time.Time, grace time.Duration, most int) {
	c.planning = true
	high, rev := c.high, c.highRev
	go func() {
		made := madePlan{c, rev, job.plan(high, now, grace, most)}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.made = append(p.made, made)
		signal(p.done)
	}()
}

func (p *planner) take() []madePlan {
	p.mu.Lock()
	defer p.mu.Unlock()
	made := p.made
	p.made = nil
	return made
}
