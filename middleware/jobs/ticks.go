package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/middleware"
)

// errNoTick is returned when a job is started before the first instant of its
// schedule.
var errNoTick = errors.New("no tick is due")

// TicksConfig configures Ticks. The zero value is usable.
type TicksConfig struct {
	// Alone skips a tick while an earlier tick of the job is running in any
	// process. A skipped tick is recorded as done. With Alone, the function's
	// context has the token of the job, not of the tick. Fences then rise from
	// tick to tick, and a late write of one tick is refused after the next tick
	// has written. If the job's claim is lost before the function has returned,
	// the tick is not recorded as run.
	Alone bool
	// StandBy lets a process wait for the end of a tick that another process
	// runs, and take the tick over if that process dies. Otherwise such a tick is
	// lost. If etcd does not answer, a process tries a tick until the next one is
	// due, and then drops it. So after an outage the newest tick runs, and not
	// all that were due during it.
	StandBy bool
	// Context returns the context that a Job runs in; its scheduler provides no
	// context. End it to stop jobs on shutdown. Default: context.Background.
	Context func() context.Context
	// Now is the clock of the scheduler. Default: time.Now.
	Now func() time.Time
	// Report is called for each tick that this process came to. The error is nil
	// if the tick ran here and was recorded, and otherwise the reason: see Task.
	// Default: for a Job, errors are logged, because no caller sees them: by the Logger of an
	// *etcdclaims.Client, and else with slog.Default. A Task only returns them.
	Report func(Tick, error)
}

// Ticks runs each tick of one job once, in one of the processes whose schedulers
// reach it, however far apart their clocks are. That holds for as long as done
// work is remembered (work.Config.Retention). A lock around the job would
// not be enough: a short job ends before the next process asks for the lock.
//
// Ticks is a cron.Schedule of robfig/cron, and a gocron.Cron. Give it to the
// scheduler in place of the schedule, so that both use the same instants. Use one
// Ticks for one job of one scheduler.
type Ticks struct {
	job      string
	schedule Schedule
	cfg      TicksConfig
	host     attach.Client
	try      work                                                                            // nil: without claims
	line     work                                                                            // nil unless it stands by
	alone    func(ctx context.Context, do func(context.Context) error) (returned, err error) // nil: ticks may overlap

	mu      sync.Mutex
	taken   time.Time             // the newest tick tried here, or due when the Ticks was made
	first   time.Time             // when the Ticks was made; later, when the scheduler first called Next
	asked   bool                  // the scheduler has called Next
	came    bool                  // a tick was tried
	zone    *time.Location        // of the scheduler: schedules may depend on it
	waiting map[*waiting]struct{} // ticks without an answer of etcd
}

// work runs fn as the work of a key, unless another process runs it or it is
// done.
type work func(ctx context.Context, key string, fn func(context.Context) ([]byte, error)) (first bool, err error)

// NewTicks returns the Ticks of a job. The name of the job is the prefix of their
// keys. The name and the schedule must be the same in all processes. If the
// schedule has no time zone of its own, it uses the scheduler's, which must then
// also be the same.
//
// NewTicks returns an error if the name cannot be part of a key. It also does if the
// schedule counts from the time of the call, as robfig's @every does.
//
// The options apply to the work of each tick and, with Alone, to the job's claim:
// both end at the same time if the process dies. The runner works must be of the client claims. With work.AtMostOnce, a
// tick whose process died does not run again.
//
// If claims is a passthrough (see etcdclaims.NewPassthrough), each process runs all ticks. If
// claims or works are nil, or a nil *etcdclaims.Client or *work.Runner, NewTicks returns an error.
func NewTicks(claims middleware.Claims, works middleware.Works, job string, s Schedule, cfg TicksConfig,
	opts ...middleware.WorkOption,
) (*Ticks, error) {
	if err := checkJob(job); err != nil {
		return nil, err
	}
	for _, of := range []any{claims, works} {
		if err := passthrough.Check(of); err != nil {
			return nil, fmt.Errorf("jobs: job %q: %w", job, err)
		}
	}
	if s == nil {
		return nil, fmt.Errorf("jobs: job %q has no schedule", job)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := checkSchedule(job, s, cfg.Now()); err != nil {
		return nil, err
	}
	if cfg.Context == nil {
		cfg.Context = context.Background
	}
	t := &Ticks{job: job, schedule: s, cfg: cfg, first: cfg.Now(), waiting: map[*waiting]struct{}{}, host: attach.Of(claims)}
	// Ticks due before count as taken: if the first start is early, it is for the
	// upcoming tick.
	t.taken, _ = newest(s, t.first)
	if passthrough.Of(claims) || passthrough.Of(works) {
		return t, nil
	}
	t.try = func(ctx context.Context, key string, fn func(context.Context) ([]byte, error)) (bool, error) {
		_, first, err := works.TryOnce(ctx, key, fn, opts...)
		return first, err
	}
	if cfg.StandBy {
		t.line = func(ctx context.Context, key string, fn func(context.Context) ([]byte, error)) (bool, error) {
			_, first, err := works.Once(ctx, key, fn, opts...)
			return first, err
		}
	}
	if cfg.Alone {
		// The job's error is a result, apart from the error of its claim: see result.
		t.alone = middleware.Func(claims,
			func(func(context.Context) error) string { return job },
			func(ctx context.Context, do func(context.Context) error) (error, error) { return do(ctx), nil },
			middleware.FuncConfig{}, plainOptions(opts)...)
	}
	return t, nil
}

// plainOptions returns the options that a claim without a record of work accepts.
func plainOptions(opts []middleware.WorkOption) (plain []middleware.AcquireOption) {
	for _, opt := range opts {
		if o, ok := opt.(middleware.AcquireOption); ok {
			plain = append(plain, o)
		}
	}
	return plain
}

// Next returns the first tick after an instant. The scheduler calls it.
func (t *Ticks) Next(after time.Time) time.Time {
	t.mu.Lock()
	t.goBy(after.Location())
	t.mu.Unlock()
	return t.schedule.Next(after)
}

// goBy records the scheduler's time zone. What was due in that zone when the
// scheduler first asked counts as taken. The zone may differ from the process's,
// and the same schedule then has other ticks.
func (t *Ticks) goBy(zone *time.Location) {
	if !t.came && (!t.asked || t.zone != zone) {
		if !t.asked {
			t.first, t.asked = t.cfg.Now(), true
		}
		t.taken, _ = newest(t.schedule, t.first.In(zone))
	}
	t.zone = zone
}

// Task returns a function that runs fn for the tick that is due. Call it when a
// tick is due, for example with gocron.NewTask. It runs the newest tick that is
// due, or that will be due within a second. It does not catch up on missed ticks.
// The context carries the Tick and the token. It ends with the claim, with the
// caller's context, and at MaxHold. Task panics if fn is nil.
//
// The function returns nil if the tick ran here, or if another process runs or
// has run it. Report then receives an error that matches fencing.ErrHeld or
// middleware.ErrDone. An error of fn is returned unchanged; the tick still counts
// as run. After a panic or Goexit of fn the tick also counts as run; the panic or
// Goexit continues once that is recorded.
//
// The error is a *middleware.NotRunError if the tick was not run because etcd did
// not answer. It matches fencing.ErrLost if the claim was lost before fn
// returned; another process that comes to the tick later runs it again.
//
// What is not guaranteed: a tick is lost if its process dies, unless another process
// has StandBy or comes to the tick later. It is lost if no process can
// reach etcd when it is due. The record of a tick whose process died stays in
// etcd: see work.Runner.Orphans.
func (t *Ticks) Task(fn func(ctx context.Context) error) func(ctx context.Context) error {
	if fn == nil {
		panic("jobs: Task needs a function")
	}
	return func(ctx context.Context) error {
		_, err := t.do(ctx, fn)
		return err
	}
}

// errNoReturn stands for a panic or Goexit.
var errNoReturn = errors.New("jobs: the job did not return")

// do runs fn for the tick that is due, and returns what Task's function returns.
func (t *Ticks) do(ctx context.Context, fn func(ctx context.Context) error) (tick Tick, err error) {
	tick = Tick{Job: t.job}
	var others bool // another process runs or has run the tick: not an error
	err = errNoReturn
	defer func() {
		if t.cfg.Report != nil {
			t.cfg.Report(tick, err)
		}
		if others {
			err = nil
		}
	}()
	nominal, ok := t.take()
	if !ok {
		return tick, fmt.Errorf("jobs: %w for job %q", errNoTick, t.job)
	}
	tick.Nominal = nominal.UTC()
	ctx = context.WithValue(ctx, tickKey{}, tick)
	if t.try == nil {
		return tick, fn(ctx)
	}
	others, err = t.once(ctx, tick, fn)
	return tick, err
}

// take decides which tick runs now.
func (t *Ticks) take() (nominal time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.cfg.Now()
	if t.zone != nil {
		now = now.In(t.zone)
	}
	nominal, ok = tickAt(t.schedule, now, t.taken)
	t.came = true
	if nominal.After(t.taken) {
		t.taken = nominal
	}
	t.overtake(nominal)
	return nominal, ok
}

// left is how a tick has ended.
type left struct {
	outcome string // for people who read its record
	back    error  // nil if the tick is recorded as run; otherwise others may run it
}

// onceMore is the error by which work is given back.
type onceMore struct {
	ran bool // the tick was started here, and its outcome does not count
}

func (e onceMore) Error() string {
	if e.ran {
		return "jobs: the job's claim was lost before it had returned"
	}
	return "jobs: not run here"
}

// GiveBack and Ran are methods that works look for: see middleware.Works. Work that ran
// is not given back if it may run at most once.
func (onceMore) GiveBack() bool { return true }
func (e onceMore) Ran() bool    { return e.ran }

// once runs fn as the work of the tick. others reports that another process runs
// or has run it. The work runs in its own goroutine, and waits there until fn has
// returned here, or panics. So the tick is recorded as run while the stack of a panic
// still exists, for a caller that recovers it.
func (t *Ticks) once(ctx context.Context, tick Tick, fn func(ctx context.Context) error) (others bool, err error) {
	key := tick.Key()
	begun := make(chan context.Context)
	over := make(chan left)
	ended := make(chan error, 1)
	go func() {
		first, err := t.claim(ctx, tick, func(ctx context.Context) ([]byte, error) {
			begun <- ctx
			l := <-over
			return []byte(l.outcome), l.back
		})
		if err == nil && !first {
			err = fmt.Errorf("jobs: tick %s: %w", key, middleware.ErrDone)
		}
		ended <- err
	}()
	var held context.Context
	select {
	case held = <-begun:
	case err := <-ended:
		if errors.Is(err, middleware.ErrDone) {
			return true, err
		}
		return isHeld(err), &middleware.NotRunError{Key: key, Err: err}
	}
	l := left{outcome: errNoReturn.Error()}
	err = errNoReturn
	defer func() {
		over <- l
		lost := <-ended
		if lost != nil && !errors.As(lost, new(onceMore)) {
			others, err = false, &doubtError{err: lost, job: err, canceled: ctx.Err() != nil}
		}
	}()
	others, l.back, err = t.within(held, fn)
	l.outcome = "ok"
	if err != nil {
		l.outcome = fmt.Sprintf("%.1000s", err)
	}
	return others, err
}

// isHeld reports whether an error is certain that another owner holds the key.
func isHeld(err error) bool {
	return errors.Is(err, fencing.ErrHeld) && !errors.Is(err, fencing.ErrUnknown)
}

// within calls fn in the context of a tick. If fn was not called, the tick is
// skipped because an earlier one runs, or it is given back. It is also given back
// if the job's claim was lost.
func (t *Ticks) within(ctx context.Context, fn func(ctx context.Context) error) (others bool, back, err error) {
	if t.alone == nil {
		return false, nil, fn(ctx)
	}
	returned, err := t.alone(ctx, fn)
	var notRun *middleware.NotRunError
	switch {
	case err == nil:
		return false, nil, returned
	case !errors.As(err, &notRun):
		return false, onceMore{ran: true}, &doubtError{err: err, job: returned, canceled: ctx.Err() != nil}
	case isHeld(err):
		return true, nil, err
	}
	return false, onceMore{}, err
}

// log logs errors that no caller sees.
func (t *Ticks) log(ctx context.Context, tick Tick, err error) {
	if err == nil || t.cfg.Report != nil || t.host.Warn("tick failed", err, "key", tick.Key()) {
		return
	}
	slog.Default().LogAttrs(ctx, slog.LevelError, "tick failed", slog.String("tick", tick.Key()), slog.Any("error", err))
}
