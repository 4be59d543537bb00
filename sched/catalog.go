package sched

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// catalog has the jobs of this process: those in code, and those of definitions. Any goroutine
// adds jobs and looks them up, also while Run is not in progress.
type catalog struct {
	*group
	icals    icalCache
	relink   chan struct{} // has an element when a kind was registered
	complete atomic.Bool   // whether this process has all definitions

	mu        sync.Mutex
	jobs      map[string]Job             // in code, by name
	order     []Job                      // the same in the order of Add; only grows
	defined   map[string]Job             // by definitions, by name
	kinds     map[string]kindHandler     // by kind
	after     map[string][]tick.Follower // the jobs in code that run after a job
	followers followers                  // the definitions that run after another job, as far as they are known
	known     bool                       // whether all of these are
	readers   map[*changes]bool
}

// changes are the jobs that a reader of the catalog has to look up again.
type changes struct {
	news  chan struct{} // has an element when there are any
	names map[string]bool
}

// followers are the definitions that run after other jobs, by name.
type followers map[string]tick.Follower

func newCatalog(g *group) *catalog {
	return &catalog{
		group: g, icals: icalCache{parse: g.cfg.ICal}, relink: make(chan struct{}, 1),
		jobs: make(map[string]Job), defined: make(map[string]Job),
		kinds: make(map[string]kindHandler), after: make(map[string][]tick.Follower), followers: make(followers),
		readers: make(map[*changes]bool),
	}
}

// subscribe returns what changes from now on, until unsubscribe.
func (c *catalog) subscribe() *changes {
	c.mu.Lock()
	defer c.mu.Unlock()
	reader := &changes{news: make(chan struct{}, 1), names: make(map[string]bool)}
	c.readers[reader] = true
	return reader
}

func (c *catalog) unsubscribe(reader *changes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.readers, reader)
}

// take returns the names of the jobs that have changed since its last call.
func (c *catalog) take(reader *changes) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := slices.Sorted(maps.Keys(reader.names))
	clear(reader.names)
	return names
}

// touch notes that a job was added, changed or removed. The mutex is held.
func (c *catalog) touch(name string) {
	for reader := range c.readers {
		reader.names[name] = true
		signal(reader.news)
	}
}

// add adds a job in code.
func (c *catalog) add(job Job) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, twice := c.jobs[job.Name]; twice {
		return errors.New("a job of that name was added before")
	}
	if err := c.checkPlace(job); err != nil {
		return err
	}
	if err := c.follow(job); err != nil {
		return err
	}
	job.Schedule = withoutPanics(c.log, job.Name, job.Schedule)
	job = job.ruled()
	c.jobs[job.Name] = job
	c.order = append(c.order, job)
	c.touch(job.Name)
	if _, defined := c.defined[job.Name]; defined {
		c.shadowed(job.Name)
	}
	return nil
}

// checkPlace returns an error if this process would leave a job to others that do not run it.
func (c *catalog) checkPlace(j Job) error {
	if len(j.RunsOn) > 0 && !c.cfg.Spread && c.view != nil {
		return errors.New("RunsOn needs Config.Spread: without it the owner of the group runs all ticks")
	}
	return nil
}

// follow notes which job a job in code runs after. The mutex is held.
func (c *catalog) follow(job Job) error {
	before, is := job.Schedule.(after)
	if !is {
		if _, filtered := jobstate.Whole(job.Schedule).(after); filtered {
			return errors.New("calendar.Except and Only do not apply to After")
		}
		return nil
	}
	if err := before.check(job.Name); err != nil {
		return err
	}
	for _, other := range before.Jobs() {
		if len(c.after[other]) >= mostAfter {
			return fmt.Errorf("%d jobs run after %q already, which is the limit", mostAfter, other)
		}
	}
	if circleFrom(job.Name, before.Jobs(), func(name string) []string { return c.beforeOf(nil, name) }) != nil {
		return errors.New("the job would run after itself")
	}
	for _, other := range before.Jobs() {
		c.after[other] = append(c.after[other], tick.Follower{Following: before.Following, Job: job.Name})
	}
	return nil
}

// handle registers the function of a kind.
func (c *catalog) handle(kind string, handler kindHandler) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds[kind] != nil {
		return errors.New("has a handler already")
	}
	c.kinds[kind] = handler
	signal(c.relink)
	return nil
}

// served returns the jobs in code and the kinds that this process has, sorted.
func (c *catalog) served() (jobs, kinds []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.jobs)), slices.Sorted(maps.Keys(c.kinds))
}

// handlerOf returns the function of a kind, or nil.
func (c *catalog) handlerOf(kind string) kindHandler {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kinds[kind]
}

// setDefined replaces the job of a definition; a nil job removes it. A job in code with
// the name has precedence.
func (c *catalog) setDefined(name string, job *Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if job == nil {
		delete(c.defined, name)
		c.histories.Forget(c.keys.Records(name))
	} else {
		c.defined[name] = *job
	}
	if _, inCode := c.jobs[name]; !inCode {
		c.touch(name)
	} else if job != nil {
		c.shadowed(name)
	}
}

// shadowed logs that a job in code has the name of a definition.
func (c *catalog) shadowed(name string) {
	c.log.Warn("definition not taken up", zap.String("job", name), zap.String("etcd_key", c.keys.Definition(name)), zap.Error(errInCode))
}

// inCode reports whether a job in code of this process has the name.
func (c *catalog) inCode(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, is := c.jobs[name]
	return is
}

func (c *catalog) undefineAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.defined {
		delete(c.defined, name)
		c.touch(name)
	}
	c.known = false // the owner still decides about ticks that its last rounds end
	c.complete.Store(false)
}

// lookUp returns a job in code, or else one that is defined, even if this process cannot
// run it.
func (c *catalog) lookUp(name string) (Job, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j, ok := c.jobs[name]
	if !ok {
		j, ok = c.defined[name]
	}
	return j, ok
}

// job returns a job that this process can run.
func (c *catalog) job(name string) (Job, bool) {
	j, ok := c.lookUp(name)
	return j, ok && j.problem == ""
}

// all returns the jobs in code in the order of Add, and those that are defined.
func (c *catalog) all() []Job {
	c.mu.Lock()
	defer c.mu.Unlock()
	jobs := slices.Clone(c.order)
	for name, j := range c.defined {
		if _, inCode := c.jobs[name]; !inCode {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// setFollower takes over a definition. One that runs after no job is dropped.
func (c *catalog) setFollower(is tick.Follower) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(is.Jobs()) == 0 {
		delete(c.followers, is.Job)
	} else {
		c.followers[is.Job] = is
	}
}

// dropFollowers forgets the definitions of an earlier Run.
func (c *catalog) dropFollowers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.followers)
}

// knowsFollowers notes whether the followers are all that there are.
func (c *catalog) knowsFollowers(all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if all && !c.known {
		for reader := range c.readers {
			signal(reader.news)
		}
	}
	c.known = all
}

// knows reports whether this process has learnt of the definitions that there are.
func (c *catalog) knows() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// following returns the jobs that run after a job. It reports whether this process knows all of
// them. A job in code of this process has precedence over a definition of its name.
func (c *catalog) following(job string) (all []tick.Follower, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(slices.Clone(c.after[job]), c.pick(c.followers, job)...), c.known
}

// readFollowing is following in a process that may not know all definitions, as in its first moments
// and while it stops: it reads them from etcd.
func (c *catalog) readFollowing(ctx context.Context, job string) ([]tick.Follower, error) {
	if found, known := c.following(job); known {
		return found, nil
	}
	resp, err := retry.Get(ctx, core.Of(c.claims).KV(), readTime,
		clientv3.OpGet(c.keys.AllDefined(), clientv3.WithPrefix()))
	if err != nil {
		return nil, err
	}
	all := make(followers)
	for _, kv := range resp.Kvs {
		if n, err := decode[notice](string(kv.Key), kv.Value); err == nil && len(n.Jobs()) > 0 {
			all[n.Job] = tick.Follower{Following: n.Following, Job: n.Job, Defined: kv.ModRevision}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(slices.Clone(c.after[job]), c.pick(all, job)...), nil
}

// pick returns those that run after a job, sorted by name. The mutex is held.
func (c *catalog) pick(all followers, job string) (found []tick.Follower) {
	for name, f := range all {
		if _, inCode := c.jobs[name]; inCode || !f.Has(job) {
			continue
		}
		if circle := circleFrom(name, f.Jobs(), func(job string) []string { return c.beforeOf(all, job) }); circle != nil {
			c.log.Error("tick not requested: the jobs run after each other in a circle",
				zap.String("job", name), zap.Strings("circle", circle))
			continue
		}
		found = append(found, f)
	}
	slices.SortFunc(found, func(a, b tick.Follower) int { return strings.Compare(a.Job, b.Job) })
	return found
}

// beforeOf returns the jobs that a job runs after. The mutex is held.
func (c *catalog) beforeOf(all followers, job string) []string {
	if j, inCode := c.jobs[job]; inCode {
		before, _ := j.Schedule.(after)
		return before.Jobs()
	}
	f := all[job]
	return f.Jobs()
}

// parser returns the function that parses iCalendar texts, or nil if Config.ICal is not set.
func (c *catalog) parser() func(text, zone string) (calendar.Calendar, error) {
	if c.icals.parse == nil {
		return nil
	}
	return c.icals.calendar
}

var errInCode = errors.New("a job in code has this name")
