package etcdclaims

import (
	"context"
	"errors"
	"fmt"
)

// errPanicked is the cause of an attempt whose handler did not return.
var errPanicked = errors.New("the handler panicked")

// TryRunOnce runs fn as the work that the key names, once whoever calls it: it
// begins the work as TryBegin does, calls fn as TryRun does, and completes the
// work with the result that fn returned, in the transaction that gives the claim
// up. Where the work is done already fn is not called, the result is the one that
// it was completed with, and first is false.
//
// If fn returns an error, or panics, the attempt failed: see Work.Fail, Permanent
// and RetryAfter. If the error, or one that it wraps, has a method GiveBack() bool
// that returns true, the work is given back as by Work.Release: the attempt does
// not count, and another may begin at once.
//
// An error says that the work is not known to be done by this call. One that
// matches ErrLost, that nothing was recorded: another may have the work, though
// fn may have returned. ErrUnknown, that it may have been recorded: call again to
// find out. ErrTooLarge, that the result is longer than MaxResultBytes, which
// fails the attempt. Other errors are those of fn and of TryBegin, but ErrDone.
//
// What is not guaranteed: that fn runs once. If the process dies between an
// effect of fn and the completion, the next owner runs it again, unless the work
// is AtMostOnce. A passthrough client remembers nothing and calls fn each time.
func (c *Client) TryRunOnce(ctx context.Context, key string, fn func(ctx context.Context) (result []byte, err error), opts ...AcquireOption) (result []byte, first bool, err error) {
	return c.runOnce(ctx, key, fn, opts, c.TryBegin)
}

// RunOnce is TryRunOnce, but waits in line while the key is held, as Begin does.
func (c *Client) RunOnce(ctx context.Context, key string, fn func(ctx context.Context) (result []byte, err error), opts ...AcquireOption) (result []byte, first bool, err error) {
	return c.runOnce(ctx, key, fn, opts, c.Begin)
}

func (c *Client) runOnce(ctx context.Context, key string, fn func(context.Context) ([]byte, error), opts []AcquireOption,
	begin func(context.Context, string, ...AcquireOption) (*Work, error),
) (result []byte, first bool, err error) {
	if fn == nil {
		return nil, false, fmt.Errorf("etcdclaims: running %q once: the function is nil", key)
	}
	w, err := begin(ctx, key, opts...)
	var known *WorkError
	if errors.As(err, &known) && known.Record.State == StateDone {
		return []byte(known.Record.Result), false, nil
	}
	if err != nil {
		return nil, false, err
	}
	err = w.run(ctx,
		func(ctx context.Context) (err error) { result, err = fn(ctx); return err },
		func(far how, err error) error { return w.endAfter(far, result, err) })
	if err != nil {
		return nil, true, err
	}
	return result, true, nil
}

// endAfter ends work whose handler has returned. Its time is the client's own.
func (w *Work) endAfter(far how, result []byte, err error) error {
	if far == returned && err == nil {
		err = w.completeAfter(result)
		if err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrReleased) || errors.Is(err, ErrUnknown) {
			return err
		}
		// Refused: the work is this owner's yet, and must not stay so.
		cause := err
		if w.atMostOnce {
			cause = Permanent(err) // it ran, and must not run again
		}
		return errors.Join(err, w.failAfter(cause))
	}
	var given interface{ GiveBack() bool }
	switch {
	case far == called:
		return w.failAfter(errPanicked)
	case far == notCalled, errors.As(err, &given) && given.GiveBack():
		return w.releaseAfter(far, err)
	default:
		return w.failAfter(err)
	}
}

// completeAfter tries for as long as the claim lasts: what is not recorded may be
// done again.
func (w *Work) completeAfter(result []byte) error {
	ctx, cancel := w.t.s.within(w.t.s.c.io)
	defer cancel()
	for try := 0; ; try++ {
		err := w.CompleteWith(ctx, result)
		if err == nil || !isPassing(err) || errors.Is(err, ErrUnknown) || !backOff(ctx, try, w.Done()) {
			return err
		}
	}
}

func (w *Work) failAfter(cause error) error {
	ctx, cancel := context.WithTimeout(w.t.s.c.io, w.t.s.c.store.timeout)
	defer cancel()
	return ignoreUnknown(w.Fail(ctx, cause))
}

func (w *Work) releaseAfter(how, error) error {
	ctx, cancel := context.WithTimeout(w.t.s.c.io, w.t.s.c.store.timeout)
	defer cancel()
	return ignoreUnknown(w.Release(ctx))
}

// ignoreUnknown is for endings of what has failed anyway: whether that is
// recorded changes nothing for the caller.
func ignoreUnknown(err error) error {
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	return err
}
