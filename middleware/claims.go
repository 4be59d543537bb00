package middleware

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
)

// Claims runs functions under claims: *etcdclaims.Client, O being its
// AcquireOption. Run waits in line for the key, TryRun does not; both call fn
// while the key is held, or not at all, with a context that carries the token and
// ends with the claim, and return when fn has and the key is given up. The error
// is that of fn, joined with one that matches fencing.ErrLost if the claim was
// lost before. If the key is held by another, TryRun's matches fencing.ErrHeld.
type Claims[O any] interface {
	Run(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...O) error
	TryRun(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...O) error
}

// Works runs functions once for each key, and remembers their results:
// *etcdclaims.Client. Where fn ran before, it is not called again, and first is
// false. A result is stored in the very transaction that records that the work is
// done: an error says that it is not known to be. An error of fn with a method
// GiveBack() bool that returns true leaves no record, so that fn may run again at
// once.
type Works[O any] interface {
	RunOnce(ctx context.Context, key string, fn func(ctx context.Context) (result []byte, err error), opts ...O) (result []byte, first bool, err error)
	TryRunOnce(ctx context.Context, key string, fn func(ctx context.Context) (result []byte, err error), opts ...O) (result []byte, first bool, err error)
}

// passes reports whether claims let everything through, without etcd.
func passes(claims any) bool {
	if claims == nil {
		return true
	}
	p, ok := claims.(interface{ Passthrough() bool })
	return ok && p.Passthrough()
}

// ErrInvalidKey says that an input, or a request, came to a key that cannot be
// claimed, such as an empty one. Nothing was done.
var ErrInvalidKey = errors.New("middleware: invalid key")

// NotRunError says that the wrapped function or handler was not called, and why.
// It matches what Err does. An ErrUnknown or ErrLost in it is about the claim, of
// which nothing stays behind: nothing was done.
type NotRunError struct {
	Key string
	Err error
}

func (e *NotRunError) Error() string {
	return fmt.Sprintf("middleware: not run, since key %q is not claimed: %v", e.Key, e.Err)
}

// Unwrap returns Err.
func (e *NotRunError) Unwrap() error { return e.Err }

// checkKey says what is wrong with a key, as a claim would.
func checkKey(key string) error {
	if (fencing.Token{Key: key, Fence: 1}).Validate() != nil {
		return fmt.Errorf("%w: %.80q is not UTF-8 of 1 to %d bytes without control characters", ErrInvalidKey, key, fencing.MaxKeyBytes)
	}
	return nil
}
