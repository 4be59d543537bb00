package middleware

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/option"
)

// AcquireOption is an option of package etcdclaims for calls that claim a key, such
// as TTL or MaxHold.
type AcquireOption = option.AcquireOption

// WorkOption is an option for calls that begin work, such as etcdclaims.TTL or
// work.AtMostOnce.
type WorkOption = option.WorkOption

// Claims runs functions under claims. *etcdclaims.Client implements it.
//
// Run waits in line for the key; TryRun does not. Both call fn only while the key
// is held. The context of fn carries the token and ends with the claim. Both
// return after fn has returned and the key was released. The error is the error
// of fn. If the claim was lost earlier, the error also matches fencing.ErrLost.
// If another owner holds the key, the error of TryRun matches fencing.ErrHeld.
type Claims interface {
	Run(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...AcquireOption) error
	TryRun(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...AcquireOption) error
}

// Works runs functions once for each key, and remembers their results.
// *work.Runner implements it.
//
// If fn has already run for the key, it is not called again, and first is false.
// The result is stored in the transaction that records the work as done. If the call
// returns an error, the work is possibly not recorded.
//
// If an error of fn has a method GiveBack() bool that returns true, the attempt does not
// count, and fn may run again at once. With work.AtMostOnce, an error with a method
// Ran() bool that returns true is recorded as the end of the work: it is dead, and fn
// does not run again.
type Works interface {
	Once(
		ctx context.Context, key string, fn func(ctx context.Context) (result []byte, err error), opts ...WorkOption,
	) (result []byte, first bool, err error)
	TryOnce(
		ctx context.Context, key string, fn func(ctx context.Context) (result []byte, err error), opts ...WorkOption,
	) (result []byte, first bool, err error)
}

// ErrInvalidKey is returned when the key of an input or a request cannot be
// claimed, for example because it is empty. Nothing was done.
var ErrInvalidKey = errors.New("invalid key")

// NotRunError is returned when the wrapped function or handler was not called. It
// matches everything that Err matches. If it matches ErrUnknown or ErrLost, that concerns
// only acquiring the key. The function was not called.
type NotRunError struct {
	// Key is the key that was not claimed.
	Key string
	// Err is the reason.
	Err error
}

func (e *NotRunError) Error() string {
	return fmt.Sprintf("middleware: not run: key %q was not claimed: %s", e.Key, errtext.Inner(e.Err))
}

// Unwrap returns Err.
func (e *NotRunError) Unwrap() error { return e.Err }

// checkClaimed returns why a key cannot be claimed, or nil.
func checkClaimed(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if why := keyspace.Unclaimable(key); why != "" {
		return fmt.Errorf("%w: %s", ErrInvalidKey, why)
	}
	return nil
}

// checkKey returns why a key is no claim's, or nil.
func checkKey(key string) error {
	if (fencing.Token{Key: key, Fence: 1}).Validate() != nil {
		return fmt.Errorf("%w: %.80q is not UTF-8 of 1 to %d bytes without control characters", ErrInvalidKey, key, keyspace.MaxKeyBytes)
	}
	return nil
}
