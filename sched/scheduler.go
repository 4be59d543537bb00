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
	"go.uber.org/zap"
)

// Scheduler runs jobs at the ticks of their schedules, each tick once across all
// processes of a group. Its methods may be called from any goroutine.
type Scheduler struct {
	claims *etcdclaims.Client
	cfg    Config
	log    *zap.Logger
	keys   keys
	view   *view // nil: passthrough
	rings  rings

	going  atomic.Bool   // Run was called and has not returned
	epoch  atomic.Int64  // of the last claim of this process
	owning atomic.Bool   // this process is the owner
	more   chan struct{} // has an element when a job was added
	kick   chan struct{} // has an element when what waits should be tried again
	stir   chan struct{} // has an element when the owner should look for orphans

	mu         sync.Mutex
	jobs       map[string]Job
	active     map[string]*active  // runs of this process
	trying     map[string]struct{} // attempts of this process that are under way: nobody knows yet
	unbegun    map[string]struct{} // attempts of this process whose claim is unknown: no handler was called
	unbegunIDs []string            // of the last of them, the oldest first
}

// New returns a scheduler of a group. It does no I/O; Run does. The claims stay
// the caller's to close, after Run has returned.
//
// A nil client, or one without etcd, makes a passthrough scheduler: Run runs the
// jobs in this process, with fence 0, whatever others do. Nothing is remembered
// when it ends, and operations return etcdclaims.ErrPassthrough.
func New(claims *etcdclaims.Client, cfg Config) (*Scheduler, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Scheduler{
		claims: claims, cfg: cfg, log: cfg.Logger.With(zap.String("group", cfg.Group)),
		more: make(chan struct{}, 1), kick: make(chan struct{}, 1), stir: make(chan struct{}, 1),
		jobs: make(map[string]Job), active: make(map[string]*active), trying: make(map[string]struct{}), unbegun: make(map[string]struct{}),
	}
	if !claims.Passthrough() {
		s.keys = newKeys(claims.Prefix(), cfg.Group)
		s.view = newView(claims.Etcd(), s.keys.now(), s.log)
		s.rings.byPrefix, s.rings.prefix = make(map[string]*ring), len(s.keys.past(""))
	}
	return s, nil
}

// Passthrough reports whether the scheduler has no etcd and so excludes nobody.
func (s *Scheduler) Passthrough() bool { return s.claims.Passthrough() }

// Owner reports whether this process is the owner of the group as far as it
// knows. It is for people and dashboards: nothing is safe because of it.
func (s *Scheduler) Owner() bool { return s.owning.Load() }

// Add adds a job, before Run or while it runs. Its first tick is the first that
// is due after the owner has registered it, in a group that never had it.
//
// The owner of the group runs the jobs that it was given: add the same in all
// processes. While versions of a program differ in a job, that of the owner
// counts.
func (s *Scheduler) Add(job Job) error {
	job, err := job.withDefaults()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.jobs[job.Name]; twice {
		return fmt.Errorf("sched: job %q was added before", job.Name)
	}
	s.jobs[job.Name] = job
	signal(s.more)
	signal(s.kick)
	return nil
}

// Run takes part in the group until ctx ends: it waits in line for the ownership,
// admits ticks while it has it, and runs them. Then it gives up the ownership at
// once, ends the contexts of its handlers and waits until they have returned, or
// are shut out after their drain.
//
// It returns nil if ctx ended and all handlers had returned; else an error that
// says which had not, or that the client of claims was closed. Losing etcd ends
// nothing: no tick is admitted, and no run begins, until it is back.
func (s *Scheduler) Run(ctx context.Context) error {
	if !s.going.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer s.going.Store(false)
	handlers, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(fmt.Errorf("%w (%w)", ErrStopped, context.Cause(ctx))) })()
	if s.Passthrough() {
		s.log.Warn("no etcd is configured: jobs run in this process, and in every other")
		s.runAlone(ctx, handlers)
		return s.drain()
	}
	member, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	wg.Go(func() { s.view.follow(member) })
	wg.Go(func() { s.begin(member, handlers) })
	wg.Go(func() { cancel(s.stand(member)) })
	wg.Wait()
	stop(ErrStopped)
	err := s.drain()
	if cause := context.Cause(member); errors.Is(cause, etcdclaims.ErrClosed) {
		err = errors.Join(cause, err)
	}
	return err
}

// stand stands for election, again and again. It returns why it gave up.
func (s *Scheduler) stand(ctx context.Context) error {
	for try := 0; ctx.Err() == nil; try++ {
		claim, err := s.claims.Acquire(ctx, ownerKey(s.cfg.Group))
		switch {
		case errors.Is(err, etcdclaims.ErrClosed):
			return err
		case err != nil:
			if ctx.Err() == nil {
				s.log.Warn("the ownership of the group cannot be had; trying again", zap.Error(err))
				pauseFor(ctx, try)
			}
			continue
		}
		try = 0
		s.reign(ctx, claim)
	}
	return ctx.Err()
}

// reign owns the group for one term.
func (s *Scheduler) reign(ctx context.Context, claim *etcdclaims.Claim) {
	fence := claim.Fence()
	s.epoch.Store(fence >> epochShift)
	s.log.Info("this process is the owner of the group now", zap.Int64("fence", fence))
	if hook := s.cfg.Hooks.Elected; hook != nil {
		hook(fence)
	}
	bound, unbind := claim.Bind(ctx)
	t := newTenure(s, claim)
	s.owning.Store(true)
	signal(s.kick)
	t.rule(bound)
	s.owning.Store(false)
	unbind()
	lost := claim.Err()
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTime)
	defer cancel()
	if err := claim.Release(release); err != nil && lost == nil {
		lost = err
	}
	s.log.Info("this process is not the owner of the group any more", zap.Int64("fence", fence), zap.Error(lost))
	if hook := s.cfg.Hooks.Deposed; hook != nil {
		hook(fence, lost)
	}
}

// drain waits for handlers that were told to stop.
func (s *Scheduler) drain() error {
	s.mu.Lock()
	all := make([]*active, 0, len(s.active))
	for _, a := range s.active {
		all = append(all, a)
	}
	s.mu.Unlock()
	var on []string
	for _, a := range all {
		if !a.over() {
			on = append(on, a.tick.Job)
		}
	}
	if len(on) == 0 {
		return nil
	}
	slices.Sort(on)
	return fmt.Errorf("sched: handlers of %d runs go on though they were told to stop, of %s: they are shut out by their fences", len(on), strings.Join(slices.Compact(on), ", "))
}

// job returns a job that was added.
func (s *Scheduler) job(name string) (Job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, ok := s.jobs[name]
	return j, ok
}

func (s *Scheduler) now() time.Time { return s.cfg.Now().UTC().Round(0) }

// signal puts an element into a channel of one, if there is none.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
