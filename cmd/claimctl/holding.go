package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
)

// holding is what the command runs under: a claim, the claim of work, or the claims of
// several keys, which end together.
type holding struct {
	*etcdclaims.Claim // the first one
	others            []*etcdclaims.Claim
	ended             chan struct{}   // closed when one of several is done; nil if there is one
	ctx               context.Context // of several; nil if there is one
	cancel            context.CancelCauseFunc
	work              *work.Work
	maxHold           time.Duration // zero: no limit
	begun             time.Time
	known             atomic.Pointer[time.Time] // the deadline, while the wall clock did not contradict it
	slotted           bool                      // the claim is on a slot

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

// claimsOf returns what holds several claims. It ends when the first of them ends.
func claimsOf(all []*etcdclaims.Claim) *holding {
	h := &holding{Claim: all[0], others: all[1:]}
	if len(h.others) == 0 {
		return h
	}
	h.ctx, h.cancel = context.WithCancelCause(h.Claim.Context())
	h.ended = make(chan struct{})
	var once sync.Once
	for _, c := range all {
		context.AfterFunc(c.Context(), func() { h.cancel(context.Cause(c.Context())) })
		go func() { // until the claim is released or lost
			<-c.Done()
			once.Do(func() { close(h.ended) })
		}()
	}
	return h
}

// all yields the claims.
func (h *holding) all() []*etcdclaims.Claim {
	return append([]*etcdclaims.Claim{h.Claim}, h.others...)
}

// Context ends when the first of the claims' contexts ends.
func (h *holding) Context() context.Context {
	if h.ctx != nil {
		return h.ctx
	}
	return h.Claim.Context()
}

// Done is closed when the first of the claims is done.
func (h *holding) Done() <-chan struct{} {
	if h.ended != nil {
		return h.ended
	}
	return h.Claim.Done()
}

// Err returns why the claims ended, or nil.
func (h *holding) Err() error { return h.first((*etcdclaims.Claim).Err) }

// Check returns an error unless all claims are held.
func (h *holding) Check() error { return h.first((*etcdclaims.Claim).Check) }

func (h *holding) first(of func(*etcdclaims.Claim) error) error {
	for _, c := range h.all() {
		if err := of(c); err != nil {
			return err
		}
	}
	return nil
}

// Remaining returns how long all claims last unless they are renewed.
func (h *holding) Remaining() time.Duration {
	left := h.Claim.Remaining()
	for _, c := range h.others {
		left = min(left, c.Remaining())
	}
	return left
}

// Note puts the note on all claims.
func (h *holding) Note(ctx context.Context, note []byte) error {
	return h.first(func(c *etcdclaims.Claim) error { return c.Note(ctx, note) })
}

// Release releases all claims, also if one fails.
func (h *holding) Release(ctx context.Context) error {
	errs := make([]error, len(h.others)+1)
	var wg sync.WaitGroup
	for i, c := range h.all() {
		wg.Go(func() { errs[i] = c.Release(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
