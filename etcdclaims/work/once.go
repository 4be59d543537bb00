package work

import (
	"context"
	"errors"
	"fmt"
)

// TryOnce runs the work that the key names, and stores its result. It
// begins the work as TryBegin does and calls fn as etcdclaims.Client.TryRun does. One
// transaction then stores the result, records the work as done and releases
// the key.
//
// If the work is already done, fn is not called. The result is then the stored
// one, and first is false.
//
// If fn returns an error, panics or calls runtime.Goexit, the attempt fails or is given
// back; see TryRun.
//
// An error means that this call is not known to have completed the work. It
// matches:
//
//   - etcdclaims.ErrLost if the claim was lost. Nothing was recorded, although fn may
//     have returned.
//   - etcdclaims.ErrUnknown if the outcome may have been recorded. Call again to find
//     out.
//   - etcdclaims.ErrTooLarge if the result is longer than 64 KiB. The attempt
//     has failed.
//
// Other errors are those of fn and of TryBegin, except ErrDone.
//
// It is not guaranteed that fn runs once; see TryRun. A passthrough client stores nothing
// and calls fn each time.
func (c *Runner) TryOnce(
	ctx context.Context, key string, fn func(ctx context.Context) (result []byte, err error), opts ...Option,
) (result []byte, first bool, err error) {
	return c.once(ctx, key, fn, opts, c.TryBegin)
}

// Once does what TryOnce does, but waits in line while the key is held,
// as Begin does.
func (c *Runner) Once(
	ctx context.Context, key string, fn func(ctx context.Context) (result []byte, err error), opts ...Option,
) (result []byte, first bool, err error) {
	return c.once(ctx, key, fn, opts, c.Begin)
}

func (c *Runner) once(ctx context.Context, key string, fn func(context.Context) ([]byte, error), opts []Option,
	begin func(context.Context, string, ...Option) (*Work, error),
) (result []byte, first bool, err error) {
	if fn == nil {
		return nil, false, fmt.Errorf("run once %q: %w", key, errNilFunc)
	}
	w, err := begin(ctx, key, opts...)
	var known *Error
	if errors.As(err, &known) && known.Record.State == StateDone {
		return []byte(known.Record.Result), false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if result, _, err = w.runFor(ctx, fn); err != nil {
		return nil, true, err
	}
	return result, true, nil
}
