package telemetry

import (
	"context"
	"maps"
	"time"

	"github.com/etcdclaims/claims/sched"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// scheduler is the state of a scheduler that runs.
type scheduler struct {
	group string
	now   func() time.Time
}

// InstrumentScheduler makes schedulers that are created with cfg report their
// ticks and runs. It keeps the hooks and the middleware that cfg has: they are called too.
// The claims of runs are reported by the scheduler's client, if that is instrumented.
//
// Call it when cfg.Group and cfg.Now are set.
func (t *Telemetry) InstrumentScheduler(cfg *sched.Config) {
	before := cfg.Hooks
	s := scheduler{group: cfg.Group, now: cfg.Now}
	if s.now == nil {
		s.now = time.Now
	}
	cfg.Hooks.Elected = chain(before.Elected, func(int64) {
		t.ownerChanges.Add(context.Background(), 1, t.options.of(series{}.with(keyGroup, s.group)).add...)
	})
	cfg.Hooks.Began = chain(before.Began, func(tick sched.Tick) { t.began(s, tick) })
	cfg.Hooks.Finished = chain(before.Finished, func(e sched.Entry) { t.finished(s, e) })
	cfg.Hooks.Left = chain(before.Left, func(e sched.Entry) { t.left(s, e) })
	cfg.Hooks.Asked = asked(before.Asked)
	cfg.Middleware = append([]sched.Middleware{t.tick}, cfg.Middleware...)
	cfg.Hooks.Running = tracked(t, before.Running, t.schedulers, s)
}

// asked returns a hook that passes the span of a caller of RunNow or Backfill on to the
// ticks that it makes. If the hook that was there before returns a trace, that is passed on
// instead.
func asked(theirs func(context.Context) string) func(context.Context) string {
	return func(ctx context.Context) string {
		if theirs != nil {
			if trace := theirs(ctx); trace != "" {
				return trace
			}
		}
		return formatTrace(trace.SpanContextFromContext(ctx))
	}
}

// tick is the middleware by which the handler of a tick has a span.
func (t *Telemetry) tick(next sched.Handler) sched.Handler {
	return func(ctx context.Context, tick sched.Tick) (err error) {
		var opts []trace.SpanStartOption
		if from, ok := parseTrace(tick.Trace); ok {
			opts = append(opts, trace.WithLinks(trace.Link{
				SpanContext: from,
				Attributes:  []attribute.KeyValue{attribute.String("etcdclaims.link", "request")},
			}))
		}
		ctx, span := t.tracer.Start(ctx, "etcdclaims.tick", opts...)
		if span.IsRecording() {
			shown := tick
			if t.hideKeys { // the key of a run has the name of its job
				shown.Job = t.jobs.of(tick.Job)
			}
			span.SetAttributes(
				keyGroup.String(tick.Group), keyJob.String(shown.Job), attribute.String("etcdclaims.tick", shown.ID()),
				attribute.String("etcdclaims.tick.nominal", tick.Nominal.Format(time.RFC3339Nano)),
				attribute.Int("etcdclaims.attempt", tick.Attempt), keyFence.String(formatFence(tick.Fence)),
			)
		}
		returned := false
		defer func() {
			if err != nil {
				t.setFailed(span, err, errorTypeOf(err))
			} else if !returned {
				span.SetStatus(codes.Error, "panic") // or Goexit; it goes on
			}
			span.End()
		}()
		err = next(ctx, tick)
		returned = true
		return err
	}
}

func (t *Telemetry) began(s scheduler, tick sched.Tick) {
	if tick.Attempt > 1 {
		return // how late that is shows nothing about the schedule
	}
	job := t.jobs.of(tick.Job)
	if !tick.Manual && !tick.Actual.IsZero() {
		late := max(s.now().Sub(tick.Actual), 0)
		t.lateness.Record(context.Background(), late.Seconds(), t.options.of(series{}.with(keyGroup, s.group).with(keyJob, job)).record...)
	}
	t.count(s, job, sched.OutcomeMissed, tick.Missed)
}

func (t *Telemetry) finished(s scheduler, e sched.Entry) {
	job := t.jobs.of(e.Job)
	t.count(s, job, e.Outcome, 1)
	t.runs.Record(context.Background(), max(e.Ended.Sub(e.Began), 0).Seconds(),
		t.options.of(series{}.with(keyGroup, s.group).with(keyJob, job).with(keyOutcome, string(e.Outcome))).record...)
}

// left counts a tick that was not run, with those that were given up before it.
// Those before a run were counted as it began.
func (t *Telemetry) left(s scheduler, e sched.Entry) {
	job, missed := t.jobs.of(e.Job), e.Missed
	switch {
	case e.Outcome == sched.OutcomeMissed:
		missed = max(missed, 1) // itself is one of them
	case e.Attempt > 0:
		t.count(s, job, e.Outcome, 1)
		return
	default:
		t.count(s, job, e.Outcome, 1)
	}
	t.count(s, job, sched.OutcomeMissed, missed)
}

func (t *Telemetry) count(s scheduler, job string, outcome sched.Outcome, n int) {
	if n > 0 {
		counted := series{}.with(keyGroup, s.group).with(keyJob, job).with(keyOutcome, string(outcome))
		t.ticks.Add(context.Background(), int64(n), t.options.of(counted).add...)
	}
}

// collectSchedulers observes the schedulers that run, those of a group together.
func (t *Telemetry) collectSchedulers(o metric.Observer) {
	type sum struct {
		owner, running int64
		due, paused    time.Time
		now            time.Time
	}
	t.mu.Lock()
	running := maps.Clone(t.schedulers) // s.now is the program's: it may call anything
	t.mu.Unlock()
	groups := make(map[string]sum)
	for is, s := range running {
		st, g := is.Stats(), groups[s.group]
		if st.Owner {
			g.owner = 1
		}
		g.running += int64(st.Running)
		if !st.NextDue.IsZero() {
			g.due, g.now = st.NextDue, s.now()
		}
		if !st.PausedSince.IsZero() {
			g.paused, g.now = st.PausedSince, s.now()
		}
		groups[s.group] = g
	}
	for group, g := range groups {
		with := t.options.of(series{}.with(keyGroup, group)).observe
		o.ObserveInt64(t.owner, g.owner, with...)
		o.ObserveInt64(t.running, g.running, with...)
		if g.owner == 1 {
			late := time.Duration(0)
			if !g.due.IsZero() {
				o.ObserveFloat64(t.nextDue, float64(g.due.UnixMilli())/1000, with...)
				late = max(g.now.Sub(g.due), 0)
			}
			o.ObserveFloat64(t.overdue, late.Seconds(), with...)
			paused := time.Duration(0)
			if !g.paused.IsZero() {
				paused = max(g.now.Sub(g.paused), time.Millisecond) // so that it differs from none
			}
			o.ObserveFloat64(t.pausedJobs, paused.Seconds(), with...)
		}
	}
}
