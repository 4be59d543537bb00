package sched

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/live"
	"github.com/etcdclaims/claims/internal/oplog"
	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/internal/txn"
	"go.uber.org/zap"
)

// Scheduler runs jobs at the ticks of their schedules. Each tick begins at most once
// per attempt across all processes of a group. The methods of a Scheduler are safe
// for concurrent use.
type Scheduler struct {
	claims    *etcdclaims.Client
	cfg       Config
	log       *zap.Logger
	keys      keys
	view      *live.View // nil: passthrough
	histories *live.Histories
	icals     icalCache

	outage *oplog.Log
	ends   live.Ends

	going  atomic.Bool  // whether Run was called and has not returned
	epoch  atomic.Int64 // the epoch of the last claim of this process
	owning atomic.Bool  // whether this process is the owner

	conflict atomic.Pointer[string] // why jobs of this process do not run; nil if nothing is known

	catalogued     atomic.Bool // whether this process has all definitions
	followersKnown atomic.Bool // whether it has all followers; cleared with the mutex held

	nextDue atomic.Pointer[time.Time] // when the owner's next tick is due; nil if no tick is, or this process is not the owner
	added   chan struct{}             // has an element when a job was added or changed
	starter atomic.Pointer[starter]   // of Run; nil before and after
	prompt  sync.WaitGroup            // ticks that begin as they are admitted
	retry   chan struct{}             // has an element when waiting ticks should be tried again
	rescan  chan struct{}             // has an element when the owner should look for orphans
	relink  chan struct{}             // has an element when a kind was registered

	mu         sync.Mutex
	jobs       map[string]Job          // in code, by name
	defined    map[string]Job          // by definitions, by name
	kinds      map[string]kindHandler  // by kind
	touched    map[string]bool         // the jobs that have changed since an owner took them over, by name
	generation int                     // how often any job has changed
	after      map[string][]string     // the jobs in code that run after a job
	followers  followers               // the definitions that run after another job, as far as they are known
	order      []Job                   // the jobs in the order of Add; only grows
	active     map[string]*active      // the runs of this process
	activeOf   map[string]*jobRuns     // by the digest of the job
	trying     map[string]struct{}     // the attempts of this process whose outcome is not known yet
	unbegun    map[string]struct{}     // the attempts of this process whose claim is unknown; no handler was called
	unbegunIDs []string                // the keys of unbegun, oldest first
	freed      []string                // claims that are free now
	freedAll   bool                    // all claims may be free now
	denied     context.CancelCauseFunc // ends Run after a permission error
}

// explained returns what the caller learns of a request that failed.
func (s *Scheduler) explained(err error) error {
	return txn.Denied(attach.Of(s.claims).Explain(err))
}

// New returns a scheduler. It does no I/O. Close of claims ends Run. New returns an error if the
// configuration is invalid, and etcdclaims.ErrNoClient for a nil client.
//
// With a client of etcdclaims.NewPassthrough New returns a passthrough scheduler. Its Run runs the
// jobs in this process, with fence 0, whatever other processes do.
// Nothing is recorded, and operations such as Pause return
// etcdclaims.ErrPassthrough.
func New(claims *etcdclaims.Client, cfg Config) (*Scheduler, error) {
	if err := passthrough.Check(claims); err != nil {
		return nil, errtext.Wrap("sched", err)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = attach.Logger(claims, zap.NewNop)
	}
	if cfg.Now == nil {
		cfg.Now = clock.For(claims.Etcd()).Time
	}
	s := &Scheduler{
		claims: claims, cfg: cfg, log: cfg.Logger.With(zap.String("group", cfg.Group)),
		added: make(chan struct{}, 1), retry: make(chan struct{}, 1), rescan: make(chan struct{}, 1), relink: make(chan struct{}, 1),
		jobs: make(map[string]Job), defined: make(map[string]Job), followers: make(followers),
		kinds: make(map[string]kindHandler), touched: make(map[string]bool),
		after: make(map[string][]string), active: make(map[string]*active), activeOf: make(map[string]*jobRuns), trying: make(map[string]struct{}), unbegun: make(map[string]struct{}),
	}
	s.outage = oplog.New(s.log, claims.Unreachable)
	if !claims.Passthrough() {
		s.keys = newKeys(claims.Prefix(), cfg.Group)
		s.histories = live.NewHistories(len(s.keys.Records("")))
		s.view = live.New(core.Of(claims).KV(), claims.Etcd(), s.keys.Now(), s.log, s.outage, s.histories.ForgetAll)
	}
	return s, nil
}

// Passthrough reports whether the scheduler has no etcd. Such a scheduler does not
// exclude other processes.
func (s *Scheduler) Passthrough() bool { return s.claims.Passthrough() }

// Owner reports whether this process is the owner of the group as far as it knows. It
// is meant for dashboards. The answer can be out of date, so make no decision
// depend on it.
func (s *Scheduler) Owner() bool { return s.owning.Load() }

// Add adds a job, before or during Run. The first tick of a job that is new to the
// group is the first one due after the owner has registered the job.
//
// The owner admits ticks of the jobs that were added in its own process. Add the
// same jobs in all processes. The job does not run while the owner does not have it: see
// JobInfo.Unadmitted. While processes differ in a job, the owner's version
// applies.
//
// Add returns an error if the job is invalid, or if a job of that name was added
// before.
func (s *Scheduler) Add(job Job) error {
	name := job.Name
	job, err := job.withDefaults()
	if err != nil {
		return fmt.Errorf("sched: add job %.80q: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.jobs[job.Name]; twice {
		return fmt.Errorf("sched: add job %q: a job of that name was added before", job.Name)
	}
	if err := s.follow(job); err != nil {
		return fmt.Errorf("sched: add job %q: %w", job.Name, err)
	}
	job.Schedule = s.guard(job.Name, job.Schedule)
	s.jobs[job.Name] = job
	s.order = append(s.order, job)
	s.touch(job.Name)
	if _, defined := s.defined[job.Name]; defined {
		s.shadowed(job.Name)
	}
	return nil
}

// Run takes part in the group until ctx ends. It waits in line for the ownership,
// admits ticks while this process is the owner, and runs ticks. When ctx ends, Run
// gives up the ownership at once and ends the contexts of its handlers. It then
// waits until the handlers have returned, or their drain is over.
//
// Run returns nil if ctx ended and all handlers returned. It returns an error that
//   - names the jobs whose handlers did not return, or
//   - reports that Run is in progress already, or
//   - matches etcdclaims.ErrClosed if the client was closed, or
//   - matches etcdclaims.ErrPermissionDenied if etcd does not permit a request that a
//     scheduler needs.
//
// An outage of etcd does not end Run. During an outage no tick is admitted and no run
// begins. The client logs its beginning and its end, to etcdclaims.Config.Logger.
func (s *Scheduler) Run(ctx context.Context) error {
	if !s.going.CompareAndSwap(false, true) {
		return fmt.Errorf("sched: run group %q: the scheduler is running already", s.cfg.Group)
	}
	defer s.going.Store(false)
	if hook := s.cfg.Hooks.Running; hook != nil {
		if returned := hook(s); returned != nil {
			defer returned()
		}
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	returned := make(chan struct{})
	defer close(returned)
	defer attach.Of(s.claims).OnClose(func(closing context.Context) {
		end(etcdclaims.ErrClosed)
		select {
		case <-returned:
		case <-closing.Done():
		}
	})()
	handlers, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(fmt.Errorf("%w (%w)", ErrStopped, context.Cause(ctx))) })()
	if s.Passthrough() {
		s.log.Warn("no etcd configured; jobs run in every process")
		s.runLocal(ctx, handlers)
		return s.outcome(ctx, s.drain())
	}
	member, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	s.mu.Lock()
	s.denied = cancel
	s.mu.Unlock()
	wg.Go(func() { s.deny(s.view.Follow(member)) })
	wg.Go(func() { s.start(member, handlers) })
	wg.Go(func() { cancel(s.campaign(member)) })
	wg.Go(func() { s.watchOverdue(member) })
	wg.Go(func() { s.watchConflict(member) })
	wg.Go(func() { s.followDefinitions(member) })
	wg.Wait()
	s.prompt.Wait() // then drain knows their runs
	stop(ErrStopped)
	return s.outcome(member, s.drain())
}

// outcome returns what Run returns: why it ended, unless its caller ended it, and the error of drain.
func (s *Scheduler) outcome(member context.Context, drained error) error {
	if cause := context.Cause(member); errors.Is(cause, etcdclaims.ErrClosed) || oplog.IsDenied(cause) {
		return errors.Join(errtext.Wrap(fmt.Sprintf("sched: run group %q", s.cfg.Group), cause), drained)
	}
	return drained
}

// deny ends Run if err is a permission error of etcd.
func (s *Scheduler) deny(err error) {
	if !oplog.IsDenied(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied(err)
}

// drain waits for the handlers whose contexts have ended.
func (s *Scheduler) drain() error {
	s.mu.Lock()
	all := make([]*active, 0, len(s.active))
	for _, a := range s.active {
		all = append(all, a)
	}
	s.mu.Unlock()
	over := make([]bool, len(all))
	var wg sync.WaitGroup
	for i, a := range all { // at once: each may wait for as long as a drain takes
		wg.Go(func() { over[i] = a.over() })
	}
	wg.Wait()
	var on []string
	for i, a := range all {
		if !over[i] {
			on = append(on, a.tick.Job)
		}
	}
	if len(on) == 0 {
		return nil
	}
	slices.Sort(on)
	return fmt.Errorf("sched: run group %q: handlers of %d runs did not return and are shut out by their fences: %s", s.cfg.Group, len(on), strings.Join(slices.Compact(on), ", "))
}

// job returns a job that this process can run.
func (s *Scheduler) job(name string) (Job, bool) {
	j, ok := s.lookUp(name)
	return j, ok && j.problem == ""
}

func (s *Scheduler) now() time.Time { return s.cfg.Now().UTC().Round(0) }

// signal puts an element into a channel of capacity one, unless it is full.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
