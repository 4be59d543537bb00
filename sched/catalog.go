package sched

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/live"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// kindHandler is the function of a kind.
type kindHandler = func(ctx context.Context, t Tick, payload json.RawMessage) error

// Handle registers the function that runs the defined jobs of a kind in this process,
// before or during Run. It is what Job.Handler is for a job in code. The payload is that of the
// definition, as far as this process knew it when the attempt began. Register the same kinds in all processes: the owner of the group
// admits ticks of the kinds that its own process has.
//
// Handle returns an error if the kind is not UTF-8 of 1 to 200 bytes without control
// characters. It also does if handler is nil, or if the kind has a function already.
func (s *Scheduler) Handle(kind string, handler func(ctx context.Context, t Tick, payload json.RawMessage) error) error {
	err := checkName(kind)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch _, twice := s.kinds[kind]; {
	case err != nil:
	case handler == nil:
		err = errors.New("has no handler")
	case twice:
		err = errors.New("has a handler already")
	default:
		s.kinds[kind] = handler
		signal(s.relink)
		return nil
	}
	return fmt.Errorf("sched: handle: the kind %.80q %w", kind, err)
}

// catalog keeps the defined jobs of this process up to date. Its state belongs to the
// goroutine of follow.
type catalog struct {
	s     *Scheduler
	feed  *live.Feed
	known map[string]*defined // by the digest of the job
	dirty map[string]bool     // those whose jobs must be made again
}

// defined is a definition as far as this process has read it.
type defined struct {
	notice
	rev        int64 // of the notice
	read       bool
	definition Definition
	err        error // why it cannot be read
}

const readingDefinitions = "read the definitions"

// readsAtOnce is how many definitions one request reads.
const readsAtOnce = 32

// followDefinitions takes over definitions until ctx ends.
func (s *Scheduler) followDefinitions(ctx context.Context) {
	c := &catalog{s: s, feed: s.view.Subscribe(live.KindDefined), known: make(map[string]*defined), dirty: make(map[string]bool)}
	defer s.view.Unsubscribe(c.feed)
	defer s.undefineAll()
	for try := 0; ctx.Err() == nil; {
		synced := s.view.Synced
		complete := s.view.IsSynced() // the feed has all notices that existed when this process began
		if complete {
			synced = nil
		}
		c.absorb()
		s.followersKnown.Store(complete)
		err := c.update(ctx)
		switch {
		case err == nil:
			try = 0
			s.outage.Succeed(readingDefinitions)
			s.catalogued.Store(complete)
		case ctx.Err() == nil:
			s.outage.Fail(readingDefinitions, err, zap.String("etcd_key", s.keys.Definitions()))
			retry.Pause(ctx, try)
			try++
			continue
		}
		select {
		case <-c.feed.News:
		case <-synced: // the notices that existed can be absorbed
		case <-s.relink:
			for id, d := range c.known {
				c.dirty[id] = c.dirty[id] || !s.inCode(d.Job)
			}
		case <-ctx.Done():
		}
	}
}

// absorb takes over the notices that have changed.
func (c *catalog) absorb() {
	for key, is := range c.s.view.Take(c.feed) {
		id := strings.TrimPrefix(key, c.s.keys.AllDefined())
		was := c.known[id]
		n, err := notice{}, error(nil)
		if !is.Gone {
			n, err = decode[notice](key, []byte(is.Value))
		}
		if was != nil && (is.Gone || err != nil || n.Job != was.Job) {
			c.s.setFollower(was.Job, follower{})
			c.s.setDefined(was.Job, nil)
			delete(c.known, id)
		}
		if err != nil {
			c.s.log.Error("definition ignored: its notice cannot be read", zap.String("etcd_key", key), zap.Error(err))
		}
		if is.Gone || err != nil {
			continue
		}
		// The follower is replaced in one step: a success in between would request no tick.
		c.s.setFollower(n.Job, follower{before: n.After, version: is.Rev})
		if was != nil && was.rev == is.Rev {
			continue // the definition was read before its notice arrived
		}
		c.known[id] = &defined{notice: n, rev: is.Rev}
		c.dirty[id] = true
	}
}

// update makes the jobs of the definitions that have changed.
func (c *catalog) update(ctx context.Context) error {
	var unread []string
	for id, dirty := range c.dirty {
		d := c.known[id]
		switch {
		case d == nil || !dirty:
			delete(c.dirty, id)
		case !d.read:
			unread = append(unread, id)
		default:
			c.publish(id, d)
		}
	}
	for some := range slices.Chunk(unread, readsAtOnce) {
		if err := c.readSome(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// readSome reads definitions.
func (c *catalog) readSome(ctx context.Context, ids []string) error {
	var ops txn.Ops
	var reads []txn.Op
	for _, id := range ids {
		reads = append(reads, ops.Add(clientv3.OpGet(c.s.keys.Definitions()+id)))
	}
	resp, err := retry.Read(ctx, core.Of(c.s.claims).KV(), readTime, ops...)
	if err != nil {
		return txn.Denied(err)
	}
	reply := txn.ReplyIn(resp)
	for i, id := range ids {
		d := c.known[id]
		kv := reply.First(reads[i])
		d.read = true
		if kv == nil { // the notice is about to go too
			c.s.setDefined(d.Job, nil)
			c.s.setFollower(d.Job, follower{})
			delete(c.known, id)
			continue
		}
		// It can be newer than the notice that is known, whose successor is on its way.
		d.rev = kv.ModRevision
		d.definition, d.err = definitionFrom(kv)
		if d.err == nil && (d.definition.Name != d.Job || keyspace.Digest(d.Job) != id) {
			d.err = fmt.Errorf("the value of %s is that of job %.80q", kv.Key, d.definition.Name)
		}
		c.publish(id, d)
	}
	return nil
}

// publish makes the job of a definition. An iCalendar text takes a fraction of a second at most.
func (c *catalog) publish(id string, d *defined) {
	delete(c.dirty, id)
	job := c.s.jobOf(d)
	c.s.setDefined(d.Job, &job)
}

// jobOf returns the job of a definition that was read. It changes nothing.
func (s *Scheduler) jobOf(d *defined) Job {
	kind := d.definition.Kind
	s.mu.Lock()
	handler := s.kinds[kind]
	s.mu.Unlock()
	job, err := Job{}, d.err
	switch {
	case err != nil:
	case handler == nil:
		err = fmt.Errorf("the owner of the group has no handler of kind %q", kind)
	default:
		job, err = d.definition.job(handler, s.parser())
	}
	if err == nil {
		return job
	}
	job = Job{Name: d.Job, Schedule: after(""), kind: kind, defined: d.rev, problem: limitText(err.Error())}
	if schedule, err := d.definition.schedule(s.parser()); d.err == nil && err == nil {
		job.Schedule, job.Overdue = schedule, d.definition.Overdue // for the alarm: the job does not run
	}
	return job
}

// setDefined replaces the job of a definition; a nil job removes it. A job in code with
// the name has precedence.
func (s *Scheduler) setDefined(name string, job *Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if job == nil {
		delete(s.defined, name)
		s.histories.Forget(s.keys.Records(name))
	} else {
		s.defined[name] = *job
	}
	if _, inCode := s.jobs[name]; !inCode {
		s.touch(name)
	} else if job != nil {
		s.shadowed(name)
	}
}

// shadowed logs that a job in code has the name of a definition.
func (s *Scheduler) shadowed(name string) {
	s.log.Warn("definition not taken up", zap.String("job", name), zap.String("etcd_key", s.keys.Definition(name)), zap.Error(errInCode))
}

// inCode reports whether a job in code of this process has the name.
func (s *Scheduler) inCode(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, is := s.jobs[name]
	return is
}

func (s *Scheduler) undefineAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.defined {
		delete(s.defined, name)
		s.touch(name)
	}
	s.followers = make(followers)
	s.followersKnown.Store(false)
	s.catalogued.Store(false)
}

// touch notes that a job was added, changed or removed. The mutex is held. An owner reads all
// jobs first, so other processes need not remember them.
func (s *Scheduler) touch(name string) {
	if s.owning.Load() {
		s.touched[name] = true
	}
	s.generation++
	s.freedAll = true
	signal(s.added)
	signal(s.retry)
}

// takeTouched returns the names of the jobs that have changed since its last call.
func (s *Scheduler) takeTouched() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.touched) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(s.touched))
	clear(s.touched)
	return names
}

// lookUp returns a job in code, or else one that is defined, even if this process cannot
// run it.
func (s *Scheduler) lookUp(name string) (Job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, ok := s.jobs[name]
	if !ok {
		j, ok = s.defined[name]
	}
	return j, ok
}

// allJobs returns the jobs in code in the order of Add, and those that are defined. It
// returns a number too that is greater after each change.
func (s *Scheduler) allJobs() (jobs []Job, generation int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs = slices.Clone(s.order)
	for name, j := range s.defined {
		if _, inCode := s.jobs[name]; !inCode {
			jobs = append(jobs, j)
		}
	}
	return jobs, s.generation
}

// same reports whether two jobs of one name come from the same definition, or both from
// code.
func (j Job) same(o Job) bool { return j.defined == o.defined && j.problem == o.problem }
