package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
)

// Claims is what runs ticks: *etcdclaims.Client, O being its AcquireOption.
type Claims[O any] interface {
	middleware.Claims[O]
	middleware.Works[O]
}

// ErrNoTick says that a job was started before the first instant of its schedule.
var ErrNoTick = errors.New("jobs: no tick is due")

// TicksConfig says how the ticks of a job run. The zero value is a good one.
type TicksConfig struct {
	// Alone skips a tick while an earlier one of the job still runs, in any
	// process: it is done without having run. The token of the function's context
	// is that of the job then, not of the tick: fences rise from tick to tick, and
	// a late write of one tick is refused after the next.
	Alone bool
	// StandBy lets a process that finds a tick running wait for its end, and take
	// the tick over if the other process dies, instead of leaving it to the other:
	// a tick whose process died is run again then, not lost.
	StandBy bool
	// Context is what the contexts of a Job derive from, which gets none from its
	// scheduler: end it to stop jobs on shutdown. Default: context.Background.
	Context func() context.Context
	// Now is the clock of the scheduler. Default: time.Now.
	Now func() time.Time
	// Report is told of each tick that this process came to, with nil if it was
	// run and that is recorded, and else why not: see Task. Default: the errors
	// that a Task would return are logged by slog.Default for a Job, where nobody
	// else hears of them.
	Report func(Tick, error)
}

// Ticks lets each tick of one job run once, in one of the processes whose
// schedulers come to it, however far apart their clocks are, up to the time for
// which done work is remembered (etcdclaims.Config's Retention). A lock around the
// job would not: a short job is over before the next process asks for the lock.
//
// A Ticks is a cron.Schedule of robfig/cron and a gocron.Cron: give it to the
// scheduler in place of its schedule, so that both mean the same instants. It is
// for one job of one scheduler.
type Ticks struct {
	job      string
	schedule Schedule
	cfg      TicksConfig
	run      func(ctx context.Context, key string, fn func(context.Context) ([]byte, error)) (first bool, err error) // nil: without claims
	alone    func(ctx context.Context, do func(context.Context) error) (returned, err error)                         // nil: ticks may overlap

	mu    sync.Mutex
	taken time.Time      // the newest that was tried for here
	zone  *time.Location // of the scheduler: schedules may go by it
}

// NewTicks makes the ticks of a job. The name of the job is the beginning of their
// keys, and must be the same in all processes, as must the schedule: Schedules that
// count from when they are asked, such as robfig's @every, are refused. So is a
// name that makes no keys. A schedule without a zone of its own goes by that of its
// scheduler, which must be the same in all processes, too.
//
// The options are those of each tick's work: with etcdclaims.AtMostOnce a tick whose
// process died is not run again.
//
// With claims that are nil or a passthrough each process runs all ticks.
func NewTicks[O any](claims Claims[O], job string, s Schedule, cfg TicksConfig, opts ...O) (*Ticks, error) {
	if err := checkJob(job); err != nil {
		return nil, err
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
	t := &Ticks{job: job, schedule: s, cfg: cfg}
	// What was due before counts as had: a first start that comes early is for the
	// tick that it is about to be.
	t.taken, _ = newest(s, cfg.Now())
	if passes(claims) {
		return t, nil
	}
	run := claims.TryRunOnce
	if cfg.StandBy {
		run = claims.RunOnce
	}
	t.run = func(ctx context.Context, key string, fn func(context.Context) ([]byte, error)) (bool, error) {
		_, first, err := run(ctx, key, fn, opts...)
		return first, err
	}
	if cfg.Alone {
		// The job's error comes beside that of its claim, as with queues.
		t.alone = middleware.Func(claims, func(func(context.Context) error) string { return job },
			func(ctx context.Context, do func(context.Context) error) (error, error) { return do(ctx), nil }, middleware.FuncConfig{})
	}
	return t, nil
}

// Next returns the first tick after an instant, for the scheduler.
func (t *Ticks) Next(after time.Time) time.Time {
	t.mu.Lock()
	t.zone = after.Location()
	t.mu.Unlock()
	return t.schedule.Next(after)
}

// Task returns fn, to be called when a tick is due: with gocron.NewTask, say. It
// runs as the newest tick that is due, or about to be within a second; if the one
// before was missed, so it stays. The context carries the Tick and the token, and
// ends with the claim, with the caller's context, and at MaxHold.
//
// The error is nil if the tick was run here, or is run by another or was before
// (as Report is told by an error that matches fencing.ErrHeld or
// middleware.ErrDone). What fn returns is returned as it is; the tick counts as
// run, as it does after a panic or Goexit, which go on when that is recorded. If it
// was not run for want of an answer the error is a *middleware.NotRunError: no
// other error lets fn run on. If the claim was lost before fn had returned it
// matches fencing.ErrLost: another process that comes to the tick later runs it
// again.
//
// What is not guaranteed: a tick is lost if the process dies that runs it, unless
// another stands by, or comes to it later; and if no process can ask etcd when it
// is due. The record of a tick whose process died stays in etcd, since nobody ends
// it: see etcdclaims.Client.Orphans.
func (t *Ticks) Task(fn func(ctx context.Context) error) func(ctx context.Context) error {
	if fn == nil {
		panic("jobs: Task needs a function")
	}
	return func(ctx context.Context) error {
		_, err := t.do(ctx, fn)
		return err
	}
}

// errNoReturn stands for a panic, and Goexit.
var errNoReturn = errors.New("jobs: the job did not return")

// do runs fn as the tick that is due, and returns what a Task does.
func (t *Ticks) do(ctx context.Context, fn func(ctx context.Context) error) (tick Tick, err error) {
	tick = Tick{Job: t.job}
	var others bool // it is another's, as it should be
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
		return tick, fmt.Errorf("%w for job %q", ErrNoTick, t.job)
	}
	tick.Nominal = nominal.UTC()
	ctx = context.WithValue(ctx, tickKey{}, tick)
	if t.run == nil {
		return tick, fn(ctx)
	}
	others, err = t.once(ctx, tick.Key(), fn)
	return tick, err
}

// take decides which tick is run now.
func (t *Ticks) take() (nominal time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.cfg.Now()
	if t.zone != nil {
		now = now.In(t.zone)
	}
	nominal, ok = tickAt(t.schedule, now, t.taken)
	if nominal.After(t.taken) {
		t.taken = nominal
	}
	return nominal, ok
}

// left is how a tick has ended.
type left struct {
	outcome  string // for people who look at its record
	giveBack bool   // it was not run, and may be by others
}

// onceMore is the error by which work is given back.
type onceMore struct{}

func (onceMore) Error() string  { return "jobs: not run here" }
func (onceMore) GiveBack() bool { return true }

// once runs fn as the work of the key; others reports that the error says no more
// than that it is another's. The work runs in a goroutine of its own, and waits
// there until fn has returned here, or panics: so the tick is recorded as run while
// the stack of a panic stands yet, for whoever recovers it.
func (t *Ticks) once(ctx context.Context, key string, fn func(ctx context.Context) error) (others bool, err error) {
	begun := make(chan context.Context)
	over := make(chan left)
	ended := make(chan error, 1)
	go func() {
		first, err := t.run(ctx, key, func(ctx context.Context) ([]byte, error) {
			begun <- ctx
			l := <-over
			if l.giveBack {
				return nil, onceMore{}
			}
			return []byte(l.outcome), nil
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
		if lost != nil && !errors.Is(lost, onceMore{}) {
			others, err = false, &doubtError{err: lost, job: err, canceled: ctx.Err() != nil}
		}
	}()
	others, l.giveBack, err = t.within(held, fn)
	l.outcome = "ok"
	if err != nil {
		l.outcome = fmt.Sprintf("%.1000s", err)
	}
	return others, err
}

// isHeld reports whether an error says for sure that another holds the key.
func isHeld(err error) bool {
	return errors.Is(err, fencing.ErrHeld) && !errors.Is(err, fencing.ErrUnknown)
}

// within calls fn in the context of a tick. If it was not called, the tick is
// skipped for the sake of others, or given back.
func (t *Ticks) within(ctx context.Context, fn func(ctx context.Context) error) (others, giveBack bool, err error) {
	if t.alone == nil {
		return false, false, fn(ctx)
	}
	returned, err := t.alone(ctx, fn)
	var notRun *middleware.NotRunError
	switch {
	case err == nil:
		return false, false, returned
	case errors.As(err, &notRun):
		return isHeld(err), !isHeld(err), err
	}
	return false, false, &doubtError{err: err, job: returned, canceled: ctx.Err() != nil}
}

// log is for errors that nobody else hears of.
func (t *Ticks) log(ctx context.Context, tick Tick, err error) {
	if err == nil || t.cfg.Report != nil {
		return
	}
	slog.Default().LogAttrs(ctx, slog.LevelError, "a tick failed, or was not run", slog.String("tick", tick.Key()), slog.Any("error", err))
}
