package jobs

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/middleware"
)

// RiverMiddleware is a rivertype.WorkerMiddleware and a rivertype.Plugin; J is
// *rivertype.JobRow.
type RiverMiddleware[J any] struct {
	run func(ctx context.Context, c call[J, struct{}]) (struct{}, error) // nil: without claims
}

// River returns a middleware for River's workers, by which at most one job per
// key is worked at a time, across all clients.
//
//	river.Config{Middleware: []rivertype.Middleware{jobs.River(claims,
//		func(job *rivertype.JobRow) string { return "account/" + string(job.EncodedArgs) },
//		jobs.Config{NotRun: func(error) error { return river.JobSnooze(30 * time.Second) }},
//	)}}
//
// A snoozed job uses up no attempt. Without NotRun, a job that was not run has
// failed an attempt. If the claim is lost, the attempt has failed, whatever the
// worker returned, even JobCancel or JobSnooze. A worker that completes its job
// in its own transaction (river.JobCompleteTx) has completed it: guard that
// transaction with the fence.
//
// The worker's context ends with the claim. If River canceled it first, its cause
// is River's. River itself looks only at its own context, so a job that a
// shutdown interrupts counts as it does without the middleware. River's job
// timeout begins when the job runs, not while it waits in line.
//
// For River, a job that waits in line, or for an answer of etcd, is running.
// After RescueStuckJobsAfter River considers it stuck, and works it a second
// time. So a job that has not begun within half of that time is not run: see
// Config.RescueAfter, which must have the same value. A job that waits must
// finish within the other half. If a job's timeout is longer, give it no Wait, or
// increase both settings.
//
// River panics if key is nil. If claims is a passthrough, jobs are worked without a claim.
func River[J any](claims middleware.Claims, key func(J) string, cfg Config, opts ...middleware.AcquireOption) *RiverMiddleware[J] {
	if key == nil {
		panic("jobs: River needs a key function")
	}
	if passthrough.Of(claims) {
		return &RiverMiddleware[J]{}
	}
	return &RiverMiddleware[J]{run: exclusive[J, struct{}](claims, key, cfg, beforeRescue(cfg.RescueAfter), opts)}
}

// rescueAfter is River's default.
const rescueAfter = time.Hour

// beforeRescue leaves time to work a job before River considers it stuck.
func beforeRescue(after time.Duration) func(context.Context) time.Duration {
	if after <= 0 {
		after = rescueAfter
	}
	return func(context.Context) time.Duration { return after / 2 }
}

// Work runs one job. River calls it for each job.
func (m *RiverMiddleware[J]) Work(ctx context.Context, job J, doInner func(ctx context.Context) error) error {
	if m.run == nil {
		return doInner(ctx)
	}
	_, err := m.run(ctx, call[J, struct{}]{job, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, doInner(ctx)
	}})
	return err
}

// IsMiddleware marks the type as a River middleware.
func (*RiverMiddleware[J]) IsMiddleware() bool { return true }

// IsPlugin marks the type as a River plugin.
func (*RiverMiddleware[J]) IsPlugin() bool { return true }
