package jobs

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/middleware"
)

// Asynq returns a middleware for asynq, by which at most one task per key runs at
// a time, on all servers. H is asynq.Handler and T is *asynq.Task:
//
//	mux.Use(jobs.Asynq[asynq.Handler](claims, func(t *asynq.Task) string { return "stock/" + string(t.Payload()) }, jobs.Config{}))
//
// Set asynq.Config{IsFailure: jobs.IsFailure}, so that a task that was not run
// uses up no retry. At its deadline, asynq would count a waiting task as failed.
// So a task is not run unless it begins some time before its timeout or deadline,
// whatever Wait is: one second before, or a quarter of the time if that is less
// than four seconds.
//
// asynq archives a failed task that has no retries left, whether or not it ran,
// and calls IsFailure only for tasks that it retries. So enqueue tasks with a
// MaxRetry of at least 1, and let a task wait if its own failures have used up
// its retries. If its deadline comes first, it is archived, unless NotRun
// enqueues it again and returns nil.
//
//	jobs.Config{LastAttempt: func(ctx context.Context) bool {
//		retried, _ := asynq.GetRetryCount(ctx)
//		limit, _ := asynq.GetMaxRetry(ctx)
//		return retried >= limit
//	}}
//
// If the claim is lost, asynq retries the task, whatever the handler returned,
// even SkipRetry or RevokeTask. That uses up a retry.
//
// asynq abandons a handler whose task has timed out, and starts the task again
// while the handler still runs. The key stays held until the first handler has
// returned, so the second one is refused.
//
// Asynq panics if key is nil, or if it cannot make an H, such as
// asynq.HandlerFunc. If claims is a passthrough, handlers are returned unchanged.
func Asynq[H interface {
	ProcessTask(ctx context.Context, task T) error
}, T any](claims middleware.Claims, key func(T) string, cfg Config, opts ...middleware.AcquireOption) func(H) H {
	if key == nil {
		panic("jobs: Asynq needs a key function")
	}
	must[H](task[T](nil))
	if passthrough.Of(claims) {
		return func(h H) H { return h }
	}
	run := exclusive[T, struct{}](claims, key, cfg, beforeDeadline, opts)
	return func(h H) H {
		return must[H](task[T](func(ctx context.Context, t T) error {
			_, err := run(ctx, call[T, struct{}]{t, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, h.ProcessTask(ctx, t)
			}})
			return err
		}))
	}
}

// beforeDeadline leaves time to report to asynq that a task was not run.
func beforeDeadline(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return unbounded
	}
	left := time.Until(deadline)
	return left - min(left/4, time.Second)
}

// task is an asynq.Handler.
type task[T any] func(ctx context.Context, t T) error

// ProcessTask calls f.
func (f task[T]) ProcessTask(ctx context.Context, t T) error { return f(ctx, t) }

// must returns v as the interface I of a library. It panics where the wrapper is
// made, before any job runs.
func must[I any](v any) I {
	i, ok := v.(I)
	if !ok {
		panic(fmt.Sprintf("jobs: %T does not implement %v: the type parameter must be the library's own interface", v, reflect.TypeFor[I]()))
	}
	return i
}
