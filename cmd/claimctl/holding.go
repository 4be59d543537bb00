package main

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
)

// holding is what the command runs under: a claim, or the claim of work.
type holding struct {
	*etcdclaims.Claim
	work    *work.Work
	maxHold time.Duration // zero: no limit
	begun   time.Time
	known   atomic.Pointer[time.Time] // the deadline, while the wall clock did not contradict it
	slotted bool                      // the claim is on a slot

	over        bool      // the claim ended before the command
	killed      bool      // the command, by claimctl
	interrupted os.Signal // a signal that asked claimctl to end
}

// left returns how long the claim lasts unless it is renewed, and not beyond its
// MaxHold, which no renewal moves. A step of the wall clock past the deadline does not
// end the claim: Check has it verified, and the deadline that was known before counts
// until then, by the monotonic clock.
func (h *holding) left() time.Duration {
	left := h.Remaining()
	if known := h.known.Load(); left > 0 {
		end := time.Now().Add(left)
		h.known.Store(&end)
	} else if err := h.Check(); known != nil && (err == nil || errors.Is(err, etcdclaims.ErrUnknown)) {
		left = max(time.Until(*known), 0)
	}
	if h.maxHold > 0 {
		left = min(left, max(h.maxHold-time.Since(h.begun), 0))
	}
	return left
}
