package sched

import (
	"context"
	"encoding/json"
	"time"
)

// Tick is one instant at which a job is due. Handlers receive it.
type Tick struct {
	Group string
	Job   string
	// Nominal is the instant of the schedule, in UTC. Group, job and nominal time
	// identify a scheduled tick. For a tick of RunNow it is the time of the call, and
	// for a RunOnStart the time of the registration.
	Nominal time.Time
	// Actual is the time at which the tick should start: the nominal time plus its
	// jitter.
	Actual time.Time
	// Admitted is the revision of etcd at which the tick was admitted. It is 0 in a
	// passthrough scheduler.
	Admitted int64
	// Attempt is 1, or greater if AtLeastOnce or Retry runs the tick again.
	Attempt int
	// Missed is how many ticks before this one came due and were given up, because no
	// owner could admit them in time. It counts up to 100,000.
	Missed int
	// Manual reports whether the tick comes from RunNow, Backfill or RunOnStart, or follows
	// such a tick by After. Other ticks come from the schedule.
	Manual bool
	// Fence is the fence of the run's claim. The handler's context carries it as a
	// token. Fences rise over the runs of a job. With the Overlap Allow they rise over
	// the attempts of one tick only. It is 0 in a passthrough scheduler.
	Fence int64
	// Trace is what Hooks.Asked returned in the process that called RunNow or Backfill, and
	// empty for other ticks.
	Trace string
	// Payload is that of the RunNow or Backfill which requested the tick, the same for each
	// attempt. It is nil for other ticks, also for those that follow such a tick by After. Do
	// not change it.
	Payload json.RawMessage

	id string
}

// ID returns the name of the tick, which is unique in the cluster and the same for
// each attempt. Use it as an idempotency key for effects that no fence protects. It
// consists of the group, the job and one of these, separated by slashes: the nominal
// time in RFC 3339, "manual/<uuid>", "backfill/<uuid>/<nominal time>",
// "start/<hash of the job's revision>-<uuid>", or "after/" with such a text of another job.
func (t Tick) ID() string {
	return t.Group + "/" + t.Job + "/" + t.id
}

type tickKey struct{}

// FromContext returns the tick of a handler's context, or of a context derived from
// it. It returns false for any other context.
func FromContext(ctx context.Context) (Tick, bool) {
	t, ok := ctx.Value(tickKey{}).(Tick)
	return t, ok
}
