package work

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/retry"
)

// TryRun begins the work that the key names as TryBegin does, calls fn as
// etcdclaims.Client.TryRun does, and records the outcome when fn has returned:
//
//   - fn returns nil: [Work.Complete].
//   - fn returns an error: [Work.Fail]. The next attempt may begin after a
//     backoff.
//   - fn returns etcdclaims.RetryAfter(err, d): [Work.Fail]. The next attempt may begin d
//     later.
//   - fn returns etcdclaims.Permanent(err): [Work.Fail]. The work is dead.
//   - fn returns an error that gives the work back (see below):
//     [Work.Release]. The attempt does not count.
//   - fn returns an error that matches context.Canceled or etcdclaims.ErrClosed, after ctx
//     was cancelled or the client was closed: [Work.Release], or [Work.Fail] if
//     the work is AtMostOnce.
//   - fn panics: [Work.Fail]. The record has the stack. Then the panic continues.
//   - fn calls runtime.Goexit: [Work.Fail]. Then the goroutine ends.
//
// An error of fn, or one that it wraps, may implement two interfaces. A package
// can implement them without importing this one:
//
//	interface{ GiveBack() bool } // true: give the work back
//	interface{ Ran() bool }      // true: work that is AtMostOnce is dead
//
// Ran is only asked for work that is AtMostOnce. It takes precedence over
// GiveBack.
//
// fn may end the work itself with Complete, CompleteWith, Fail or Release, and
// return the error of that call. Use this to store a result, or to write to
// etcd in the transaction that ends the work. Work that fn has ended is left
// as it is.
//
// If fn is not called the error is that of TryBegin. An error of fn is
// returned in a *Error with the outcome. It matches that error, and
// ErrBackoff or ErrDead. The error matches:
//
//   - etcdclaims.ErrLost if the claim was lost before the outcome was recorded.
//     Nothing was recorded, and fn may have overlapped with another owner
//     unless its effects were fenced.
//   - etcdclaims.ErrUnknown if the outcome may have been recorded.
//
// If etcd does not record the outcome, for example for want of space or of a
// permission, the key is still given up, in the background. The work is
// then an orphan.
//
// It is not guaranteed that fn runs once. If the process dies between an
// effect of fn and the completion, the next owner runs fn again, unless the
// work is AtMostOnce. A passthrough client records nothing and calls fn each
// time.
func (c *Runner) TryRun(ctx context.Context, key string, fn func(ctx context.Context, w *Work) error, opts ...Option) error {
	return c.run(ctx, key, fn, opts, c.TryBegin)
}

// Run does what TryRun does, but waits in line while the key is held,
// as Begin does.
func (c *Runner) Run(ctx context.Context, key string, fn func(ctx context.Context, w *Work) error, opts ...Option) error {
	return c.run(ctx, key, fn, opts, c.Begin)
}

func (c *Runner) run(ctx context.Context, key string, fn func(context.Context, *Work) error, opts []Option,
	begin func(context.Context, string, ...Option) (*Work, error),
) error {
	if fn == nil {
		return fmt.Errorf("run work %q: %w", key, errNilFunc)
	}
	w, err := begin(ctx, key, opts...)
	if err != nil {
		return err
	}
	return w.Run(ctx, func(ctx context.Context) error { return fn(ctx, w) })
}

// Run calls fn while the work is held and records the outcome when fn has
// returned, as TryRun does with the work that it begins. Call it once.
func (w *Work) Run(ctx context.Context, fn func(ctx context.Context) error) error {
	if fn == nil {
		return fmt.Errorf("run work %q: %w", w.Key(), errNilFunc)
	}
	_, failed, err := w.runFor(ctx, func(ctx context.Context) ([]byte, error) { return nil, fn(ctx) })
	if failed.State != "" && !errors.Is(err, etcdclaims.ErrLost) {
		return &Error{Record: failed, Err: err}
	}
	return err
}

// call calls fn while the work is held, and then end.
func (w *Work) call(ctx context.Context, fn func(context.Context) error, end func(beside.Far, error) error) error {
	if w.term == nil {
		return w.Claim.Run(ctx, fn)
	}
	return w.term.Run(ctx, fn, end)
}

// runFor calls fn while the work is held, and then completes it with the result of
// fn or fails it. If it failed, failed is the outcome.
func (w *Work) runFor(ctx context.Context, fn func(context.Context) ([]byte, error)) (result []byte, failed Record, err error) {
	var panicked *panicError
	parent, cancelled := ctx, false
	err = w.call(ctx, func(ctx context.Context) (err error) {
		returned := false
		defer func() {
			cancelled = w.interrupted(parent, ctx)
			if returned {
				return
			}
			if v := recover(); v != nil { // nil: Goexit
				panicked = &panicError{Value: v, Stack: debug.Stack()}
				panic(v)
			}
		}()
		result, err = fn(ctx)
		returned = true
		return err
	}, func(far beside.Far, err error) error {
		if w.over.Load() {
			return nil // fn has ended the work itself
		}
		if far == beside.Returned && err == nil {
			failed, err = w.completeAfter(result)
			return err
		}
		var given interface{ GiveBack() bool }
		var ran interface{ Ran() bool }
		stopped := cancelled && (errors.Is(err, context.Canceled) || errors.Is(err, etcdclaims.ErrClosed))
		switch {
		case far == beside.Called && panicked != nil:
			err = panicked
		case far == beside.Called:
			err = errGoexit
		case far == beside.Returned && w.record.AtMostOnce && errors.As(err, &ran) && ran.Ran():
			err = etcdclaims.Permanent(err)
		case far == beside.NotCalled, errors.As(err, &given) && given.GiveBack(), stopped && !w.record.AtMostOnce:
			_, err = w.endAfter(Record{State: StateFree})
			return err
		}
		failed, err = w.endAfter(w.failed(err))
		return err
	})
	return result, failed, err
}

var (
	errNilFunc = errors.New("the function is nil")
	errGoexit  = errors.New("the handler ended its goroutine (runtime.Goexit)")
)

// interrupted reports whether the work was stopped by its caller or by the client's
// end, which is no fault of the work's. A deadline is one: the caller sets it as a
// bound for the work.
func (w *Work) interrupted(parent, ctx context.Context) bool {
	closed := ctx.Err() != nil && errors.Is(context.Cause(ctx), etcdclaims.ErrClosed)
	return closed || errors.Is(parent.Err(), context.Canceled)
}

// completeAfter completes work whose handler has returned. It tries for as long as
// the claim lasts: work without a recorded outcome may be done again. If etcd refuses, the work has
// failed.
func (w *Work) completeAfter(result []byte) (failed Record, err error) {
	ctx, cancel := w.term.Within(w.c.host.IO())
	defer cancel()
	for try := 0; ; try++ {
		err := w.CompleteWith(ctx, result)
		switch {
		case err == nil,
			errors.Is(err, etcdclaims.ErrLost), errors.Is(err, etcdclaims.ErrReleased), errors.Is(err, etcdclaims.ErrUnknown):
			return Record{}, err
		case w.c.host.IsPassing(err) && retry.PauseUnless(ctx, w.Done(), try):
			continue
		}
		// Refused: the work is this owner's yet, and must not stay so.
		cause := err
		if w.record.AtMostOnce {
			cause = etcdclaims.Permanent(err) // it ran, and must not run again
		}
		failed, why := w.endAfter(w.failed(cause))
		return failed, errtext.Both(err, why)
	}
}
