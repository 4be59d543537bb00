package webui

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/etcdclaims/claims/sched"
)

// mostGroups is how many groups of schedulers a list has. Twice as many are kept.
const mostGroups = 100

// groups are the schedulers by which jobs are read and changed.
type groups struct {
	h      *Handler
	mu     sync.Mutex
	byName map[string]*sched.Scheduler
}

func (g *groups) init(h *Handler) {
	g.h, g.byName = h, make(map[string]*sched.Scheduler)
	for _, s := range h.cfg.Schedulers {
		g.byName[s.Group()] = s
	}
}

// scheduler returns the scheduler of a group: one of this process, or one that runs
// nothing.
func (g *groups) scheduler(name string) (*sched.Scheduler, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.byName[name]; s != nil {
		return s, nil
	}
	s, err := sched.New(g.h.claims, sched.Config{Group: name, Logger: g.h.log, ICal: g.h.cfg.ICal})
	if err != nil {
		return nil, errInput{err.Error()}
	}
	if len(g.byName) < 2*mostGroups { // one costs little, and the next one too
		g.byName[name] = s
	}
	return s, nil
}

// names returns the names of all groups, also if one cannot be read.
func (g *groups) names(ctx context.Context) (all []string, unread error) {
	names := make(map[string]bool)
	for _, s := range g.h.cfg.Schedulers {
		names[s.Group()] = true
	}
	some, err := first(mostGroups, sched.Groups(ctx, g.h.claims))
	for _, name := range some {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names)), err
}
