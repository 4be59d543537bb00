package sched

import (
	"context"
	"strings"
	"time"
)

// Tick is one instant at which a job is due, as its handler is told of it.
type Tick struct {
	Group string
	Job   string
	// Nominal is the instant that the schedule names, in UTC. Together with group
	// and job it is the identity of the tick. Of a tick that no schedule made
	// (Manual) it is when that was asked for.
	Nominal time.Time
	// Actual is when the tick was to start: the nominal time and its jitter.
	Actual time.Time
	// Admitted is the revision of etcd at which it was admitted, 0 in a
	// passthrough scheduler.
	Admitted int64
	// Attempt is 1, and greater when AtLeastOnce runs a tick again.
	Attempt int
	// Missed is how many ticks before this one were due and not run, because
	// nobody could admit them. It counts up to 100,000.
	Missed int
	// Manual says that somebody asked for this run, with RunNow or Backfill, or
	// that it is a job's RunOnStart.
	Manual bool
	// Fence is that of the run's claim, which the handler's context carries as a
	// token. It rises over the runs of a job, unless its Overlap is Allow: then
	// over the attempts of one tick. It is 0 in a passthrough scheduler.
	Fence int64

	id string
}

// ID returns what names the tick in the whole cluster, and is the same for each
// of its attempts: an idempotency key for what no fence protects. It is the
// group, the job and, with slashes between, the nominal time in RFC 3339,
// "manual/<uuid>", "backfill/<uuid>/<nominal time>" or "start/<hash of the
// job's revision>".
func (t Tick) ID() string {
	return t.Group + "/" + t.Job + "/" + t.id
}

type tickKey struct{}

// FromContext returns the tick whose handler was given the context, or one that
// was derived from it.
func FromContext(ctx context.Context) (Tick, bool) {
	t, ok := ctx.Value(tickKey{}).(Tick)
	return t, ok
}

func withTick(ctx context.Context, t Tick) context.Context {
	return context.WithValue(ctx, tickKey{}, t)
}

// The ids of ticks. Those in etcd's keys stand in the order of time where they
// name one.

const (
	manualID   = "manual/"
	backfillID = "backfill/"
	startID    = "start/"
)

func nominalID(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func isBackfill(id string) bool { return strings.HasPrefix(id, backfillID) }

func isManual(id string) bool {
	return isBackfill(id) || strings.HasPrefix(id, manualID) || strings.HasPrefix(id, startID)
}
