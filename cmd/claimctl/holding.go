package main

import (
	"cmp"
	"context"
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

// claim makes the one call that acquires the key.
func (r *runner) claim(ctx context.Context, wait time.Duration) (*holding, error) {
	forKey := []etcdclaims.AcquireOption{etcdclaims.MaxHold(r.maxHold)}
	forWork := []work.Option{etcdclaims.MaxHold(r.maxHold)}
	if r.note != "" {
		note := etcdclaims.Note([]byte(r.note))
		forKey, forWork = append(forKey, note), append(forWork, note)
	}
	if r.minHold != 0 {
		forKey = append(forKey, etcdclaims.MinHold(r.minHold))
	}
	if r.slots > 0 {
		forKey = append(forKey, etcdclaims.Slots(r.slots))
	}
	if r.shared {
		forKey = append(forKey, etcdclaims.Shared())
	}
	if r.prefers {
		forKey = append(forKey, etcdclaims.Prefer(r.prefer))
	}
	if r.atMostOnce {
		forWork = append(forWork, work.AtMostOnce())
	}
	acquire, begin := r.claims.TryAcquire, r.works.TryBegin
	if wait != 0 {
		acquire, begin = r.claims.Acquire, r.works.Begin
	}
	if wait >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cmp.Or(wait, r.commandTimeout))
		defer cancel()
	}
	h := &holding{maxHold: r.maxHold, slotted: r.slots > 0}
	var err error
	if !r.once {
		h.Claim, err = acquire(ctx, r.key, forKey...)
	} else if h.work, err = begin(ctx, r.key, forWork...); err == nil {
		h.Claim = h.work.Claim
	}
	if err != nil {
		return nil, r.notAcquired(wait, err)
	}
	h.begun = time.Now()
	return h, nil
}
