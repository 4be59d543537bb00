package sched

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/live"
)

// runs are the runs of this process, and the attempts to begin some. The state belongs to the
// goroutine that begins ticks: other goroutines post to its inbox.
type runs struct {
	*group
	all   map[string]*active  // by the id of the attempt
	of    map[string]*jobRuns // by the digest of the job
	never map[string]bool     // the attempts whose claim is unknown; no handler was called
	ids   []string            // of never, oldest first
}

// jobRuns are the runs of one job.
type jobRuns struct {
	runs     map[*active]bool
	counting chan struct{} // has an element while a run counts its failure
}

func newRuns(g *group) *runs {
	return &runs{group: g, all: make(map[string]*active), of: make(map[string]*jobRuns), never: make(map[string]bool)}
}

// add notes an attempt.
func (r *runs) add(a *active) {
	id := keyspace.Digest(a.job.Name)
	of := r.of[id]
	if of == nil {
		of = &jobRuns{runs: make(map[*active]bool), counting: make(chan struct{}, 1)}
		r.of[id] = of
	}
	of.runs[a], r.all[a.run.Run], a.counting = true, a, of.counting
}

// begin notes that an attempt is a run.
func (r *runs) begin(a *active) {
	a.begun = true
	if r.view == nil {
		return
	}
	for _, key := range []string{r.keys.Cancel(a.job.Name), r.keys.Newer(a.job.Name)} { // put before this was noted
		a.cancelAsked(key, r.view.Get(key))
	}
}

// remove notes that an attempt failed, or that a run has ended. It may have left a record
// although no handler was called: never.
func (r *runs) remove(a *active, never bool) {
	const most = 10_000 // an attempt that is forgotten is recorded as lost
	delete(r.all, a.run.Run)
	id := keyspace.Digest(a.job.Name)
	if of := r.of[id]; of != nil {
		if delete(of.runs, a); len(of.runs) == 0 {
			delete(r.of, id)
		}
	}
	if !never {
		return
	}
	if len(r.ids) >= most {
		delete(r.never, r.ids[0])
		r.ids = r.ids[1:]
	}
	r.never[a.run.Run] = true
	r.ids = append(r.ids, a.run.Run)
}

// fate is what this process knows of an attempt.
type fate struct {
	alive bool // it has its claim, or is about to begin
	never bool // it called no handler, although it may have left a record
}

func (r *runs) fate(id string) fate {
	a := r.all[id]
	return fate{alive: a != nil && (!a.begun || a.claim.Err() == nil), never: r.never[id]}
}

// cancelAsked ends the contexts of the runs that began before the cancellation.
func (r *runs) cancelAsked(key string, is live.KV) {
	job, _ := r.view.JobOf(key)
	for _, a := range r.begun(job) {
		a.cancelAsked(key, is)
	}
}

// begun returns the runs of a job, by the digest of its name.
func (r *runs) begun(job string) (all []*active) {
	if of := r.of[job]; of != nil {
		for a := range of.runs {
			if a.begun {
				all = append(all, a)
			}
		}
	}
	return all
}

// drain waits for the handlers whose contexts have ended.
func (r *runs) drain() error {
	over := make(map[string]*bool)
	var wg sync.WaitGroup
	for id, a := range r.all { // at once: each may wait for as long as a drain takes
		is := new(bool)
		over[id] = is
		wg.Go(func() { *is = a.over() })
	}
	wg.Wait()
	var on []string
	for id, is := range over {
		if !*is {
			on = append(on, r.all[id].tick.Job)
		}
	}
	if len(on) == 0 {
		return nil
	}
	slices.Sort(on)
	return fmt.Errorf("sched: run group %q: handlers of %d runs did not return and are shut out by their fences: %s",
		r.cfg.Group, len(on), strings.Join(slices.Compact(on), ", "))
}
