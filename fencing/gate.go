package fencing

import (
	"context"
	"errors"
	"fmt"
)

// Gate stands on the side of a resource, and admits what comes with a token.
//
// Admit returns nil if no token with a greater fence was admitted for the key
// before; the gate remembers the fence. Else the error matches ErrStale and is,
// or wraps, a *StaleError. It matches ErrNoToken for a token with fence 0,
// ErrMalformed for one that is not valid, and ErrUnknown where the outcome is not
// known: the fence may be remembered, and Admit may be called again. Any other
// error means that nothing was admitted.
//
// Gates are safe for concurrent use, unless one says that it belongs to one
// transaction. Package fencetest has the contract as tests for any gate.
type Gate interface {
	Admit(ctx context.Context, t Token) error
}

// GateFunc is a function that is a Gate.
type GateFunc func(ctx context.Context, t Token) error

// Admit calls f.
func (f GateFunc) Admit(ctx context.Context, t Token) error { return f(ctx, t) }

// How gates, and claims, refuse. Test with errors.Is. Refusal says how each is
// told over HTTP and gRPC.
var (
	// ErrStale says that a newer owner of the key was there: whoever sent the
	// token must stop.
	ErrStale = errors.New("fencing: stale token")
	// ErrNoToken says that there is no token, or only one with fence 0.
	ErrNoToken = errors.New("fencing: no token")
	// ErrMalformed says that a text is no token, or that a token is not valid.
	ErrMalformed = errors.New("fencing: malformed token")
	// ErrHeld says that another holds the claim on the key, or waits in line for
	// it: claims say so, not gates.
	ErrHeld = errors.New("fencing: held by another")
	// ErrLost says that the claim is its holder's no longer: claims say so.
	ErrLost = errors.New("fencing: claim lost")
	// ErrUnknown says that a request was sent and its outcome is not known: it
	// may have been carried out. Never take it for a failure.
	ErrUnknown = errors.New("fencing: outcome unknown")
	// ErrClosed says that what makes claims was closed, and will make no more:
	// claims say so.
	ErrClosed = errors.New("fencing: closed")
)

// StaleError says which token was refused, and what stood against it. It matches
// ErrStale.
type StaleError struct {
	Token  Token
	Newest int64 // the greatest fence admitted for the key, 0 if it is not known
}

func (e *StaleError) Error() string {
	if e.Newest == 0 {
		return fmt.Sprintf("fencing: token %v is stale: it is not the owner's any more; stop, and claim the key again", e.Token)
	}
	return fmt.Sprintf("fencing: token %v is stale: fence %d is the newest for its key; stop, and claim the key again", e.Token, e.Newest)
}

// Is matches ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Seal admits the token at each gate in turn, up to the first error, which it
// returns. A new owner does so before its first effect: from then on the old
// owner is shut out of the resource, even if the new one has not written yet.
// An owner that could not seal all must not begin.
func Seal(ctx context.Context, t Token, gates ...Gate) error {
	for _, g := range gates {
		if err := g.Admit(ctx, t); err != nil {
			return err
		}
	}
	return nil
}
