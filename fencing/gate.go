package fencing

import (
	"context"
	"errors"
	"fmt"
)

// Gate admits or refuses a token on the side of the resource.
//
// Admit returns nil if no token with a greater fence has been admitted for the
// key; the gate then remembers the fence. Otherwise it returns an error, which
// matches
//
//   - ErrStale if a greater fence was admitted; the error is or wraps a *StaleError,
//   - ErrNoToken if the fence is 0,
//   - ErrMalformed if the token is not valid,
//   - ErrUnknown if the outcome is unknown: the fence may have been remembered, and
//     Admit may be called again,
//   - none of these if nothing was admitted for another reason.
//
// Gates are safe for concurrent use, unless their documentation binds them to one
// transaction. Package fencetest tests any Gate against this contract.
type Gate interface {
	Admit(ctx context.Context, t Token) error
}

// GateFunc is a function that implements Gate.
type GateFunc func(ctx context.Context, t Token) error

// Admit returns f(ctx, t).
func (f GateFunc) Admit(ctx context.Context, t Token) error { return f(ctx, t) }

// The errors with which gates and claims refuse. Test for them with errors.Is.
// Their texts have no prefix: the call that returns one adds its own.
// RefusalOf returns how each is reported over HTTP and gRPC.
var (
	// ErrStale is returned when a newer owner of the key has been seen, or when the
	// claim of the token is known to have ended. The sender of the token must stop.
	ErrStale = errors.New("stale token")
	// ErrNoToken is returned when there is no token, or its fence is 0.
	ErrNoToken = errors.New("no token")
	// ErrMalformed is returned when a text cannot be parsed as a token, or when a
	// token is not valid.
	ErrMalformed = errors.New("malformed token")
	// ErrHeld is returned when another owner holds the claim on the key, or waits
	// in line for it. Claims return it, gates do not.
	ErrHeld = errors.New("held by another")
	// ErrLost is returned when the holder has lost its claim. Claims return it,
	// gates do not.
	ErrLost = errors.New("claim lost")
	// ErrUnknown is returned when a request was sent and its outcome is unknown.
	// The request may have been carried out: do not treat it as failed.
	ErrUnknown = errors.New("outcome unknown")
)

// StaleError is returned for a token whose term is over: a newer owner of its key has been
// seen, or the claim has ended. It matches ErrStale.
type StaleError struct {
	// Token is the token that was refused.
	Token Token
	// Newest is the greatest fence admitted for the key. Zero means that it is
	// not known.
	Newest int64
}

func (e *StaleError) Error() string {
	if e.Newest == 0 {
		return fmt.Sprintf("token %v is stale: its owner no longer holds the key; stop, and claim the key again", e.Token)
	}
	return fmt.Sprintf("token %v is stale: fence %d is the newest for its key; stop, and claim the key again", e.Token, e.Newest)
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Seal admits the token at each gate in order, and returns the first error.
//
// A new owner calls Seal before its first effect. After that, the gates refuse
// the previous owner, even if the new owner has not written yet. If Seal returns
// an error, the new owner must not start its work.
func Seal(ctx context.Context, t Token, gates ...Gate) error {
	for _, g := range gates {
		if err := g.Admit(ctx, t); err != nil {
			return err
		}
	}
	return nil
}
