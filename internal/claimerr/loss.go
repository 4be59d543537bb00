package claimerr

import (
	"fmt"

	"github.com/etcdclaims/claims/fencing"
)

// Reason is why a claim was lost. The reasons of package etcdclaims have the same numbers.
type Reason int

// How claims are lost; see etcdclaims.Reason.
const (
	Expired Reason = iota + 1
	Deleted
	Superseded
	Revoked
	SessionDead
	MaxHold
	Shutdown
	Outlived
	NoProgress

	Reasons = int(NoProgress) + 1
)

var reasonNames = [Reasons]string{
	Expired:     "expired",
	Deleted:     "deleted",
	Superseded:  "superseded",
	Revoked:     "lease revoked",
	SessionDead: "session dead",
	MaxHold:     "held for its maximum",
	Shutdown:    "shut down",
	Outlived:    "its handler outlived its context",
	NoProgress:  "its handler made no progress",
}

func (r Reason) String() string {
	if r < Expired || int(r) >= Reasons {
		return "unknown reason"
	}
	return reasonNames[r]
}

// Loss is why a claim was, or is to be, lost.
type Loss struct {
	Reason Reason
	Err    error // what is known beyond that, or nil
}

// Of returns the error of the claim with a token, an *etcdclaims.LostError. Without a fence the claim was
// never this client's.
func (l Loss) Of(token fencing.Token) error { return provider.Of(token, l) }

// Provider makes and reads the errors of losses.
type Provider struct {
	Of func(token fencing.Token, l Loss) error
	// Fence returns the fence of the claim that an error says was lost. False means that it says so of none.
	Fence func(err error) (fence int64, ok bool)
}

var provider = Provider{
	Of: func(token fencing.Token, l Loss) error {
		return fmt.Errorf("%w: %q (fence %d): %v", ErrLost, token.Key, token.Fence, l.Reason)
	},
	Fence: func(error) (int64, bool) { return 0, false },
}

// Provide sets the provider. It is called once, before main.
func Provide(p Provider) { provider = p }

// WasAttempt reports whether an error is that of an attempt that was lost before it had the key.
func WasAttempt(err error) bool {
	fence, lost := provider.Fence(err)
	return lost && fence == 0
}
