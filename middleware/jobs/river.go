package jobs

import (
	"context"

	"github.com/etcdclaims/claims/middleware"
)

// RiverMiddleware is a rivertype.WorkerMiddleware, and a rivertype.Plugin, J being
// *rivertype.JobRow.
type RiverMiddleware[J any] struct {
	run func(ctx context.Context, c call[J, struct{}]) (struct{}, error) // nil: without claims
}

// River returns a middleware for the workers of River, by which at most one job
// per key is worked at a time, in all clients.
//
//	river.Config{Middleware: []rivertype.Middleware{jobs.River(claims,
//		func(job *rivertype.JobRow) string { return "account/" + string(job.EncodedArgs) },
//		jobs.Config{NotRun: func(error) error { return river.JobSnooze(30 * time.Second) }},
//	)}}
//
// A job that is snoozed uses up no attempt; without NotRun one that was not run
// has failed an attempt. If the claim is lost, the attempt has failed, whatever
// the worker returned: its JobCancel and JobSnooze are not heard. What a worker
// completes in its own transaction (river.JobCompleteTx) is complete: guard that
// transaction with the fence.
//
// The context of the worker ends with the claim, but its cause is River's own if
// River cancelled it first; and what River looks at is its own context. A job
// counts as interrupted by a shutdown as without the middleware. River's timeout
// of a job begins when it runs, not while it waits in line.
//
// River panics if key is nil. With claims that are nil or a passthrough jobs are
// worked without further ado.
func River[J, O any](claims middleware.Claims[O], key func(J) string, cfg Config, opts ...O) *RiverMiddleware[J] {
	if key == nil {
		panic("jobs: River needs a key function")
	}
	if passes(claims) {
		return &RiverMiddleware[J]{}
	}
	return &RiverMiddleware[J]{run: exclusive[J, struct{}](claims, key, cfg, opts)}
}

// Work is called by River for each job.
func (m *RiverMiddleware[J]) Work(ctx context.Context, job J, doInner func(ctx context.Context) error) error {
	if m.run == nil {
		return doInner(ctx)
	}
	_, err := m.run(ctx, call[J, struct{}]{job, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, doInner(ctx)
	}})
	return err
}

// IsMiddleware tells River what it is.
func (*RiverMiddleware[J]) IsMiddleware() bool { return true }

// IsPlugin tells River what it is, too.
func (*RiverMiddleware[J]) IsPlugin() bool { return true }
