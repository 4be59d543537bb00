package jobs

import (
	"context"
	"fmt"
	"reflect"

	"github.com/etcdclaims/claims/middleware"
)

// Asynq returns a middleware for asynq, H being its Handler and T its *Task: at
// most one task per key runs at a time, in all servers.
//
//	mux.Use(jobs.Asynq[asynq.Handler](claims, func(t *asynq.Task) string { return "stock/" + string(t.Payload()) }, jobs.Config{}))
//
// With asynq.Config{IsFailure: jobs.IsFailure} a task that was not run uses up no
// retry. But asynq archives whatever fails once its retries are used up, and asks
// IsFailure for retries only: let a task wait then.
//
//	jobs.Config{LastAttempt: func(ctx context.Context) bool {
//		retried, _ := asynq.GetRetryCount(ctx)
//		limit, _ := asynq.GetMaxRetry(ctx)
//		return retried >= limit
//	}}
//
// If the claim is lost, the error is one that asynq tries again after, whatever
// the handler returned: its SkipRetry and RevokeTask are not heard. That uses up a
// retry.
//
// asynq gives up on a handler whose task has timed out, and tries the task again
// beside it. The key stays held until the handler has returned, so the second one
// is refused.
//
// Asynq panics if key is nil, and if H is a type that it cannot make, such as
// asynq.HandlerFunc. With claims that are nil or a passthrough handlers are
// returned as they are.
func Asynq[H interface {
	ProcessTask(ctx context.Context, task T) error
}, T, O any](claims middleware.Claims[O], key func(T) string, cfg Config, opts ...O) func(H) H {
	if key == nil {
		panic("jobs: Asynq needs a key function")
	}
	must[H](task[T](nil))
	if passes(claims) {
		return func(h H) H { return h }
	}
	run := exclusive[T, struct{}](claims, key, cfg, opts)
	return func(h H) H {
		return must[H](task[T](func(ctx context.Context, t T) error {
			_, err := run(ctx, call[T, struct{}]{t, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, h.ProcessTask(ctx, t)
			}})
			return err
		}))
	}
}

// task is an asynq.Handler.
type task[T any] func(ctx context.Context, t T) error

// ProcessTask calls f.
func (f task[T]) ProcessTask(ctx context.Context, t T) error { return f(ctx, t) }

// must returns v as the interface I of a library. That it is one is known where
// the wrapper is made, before anything runs.
func must[I any](v any) I {
	i, ok := v.(I)
	if !ok {
		panic(fmt.Sprintf("jobs: a %T is no %v: give the library's own interface as the type parameter", v, reflect.TypeFor[I]()))
	}
	return i
}
