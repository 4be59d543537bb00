package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/retry"
)

// takeTurn claims one of the keys.
func (w *worker) takeTurn(ctx context.Context, r *rand.Rand) error {
	return w.turn(ctx, r, keyName(r.IntN(w.Keys)))
}

// turn claims a key, in one of the ways there are, and has some effects under it. Options
// exclude manual claims.
func (w *worker) turn(ctx context.Context, r *rand.Rand, key string, opts ...etcdclaims.AcquireOption) error {
	wait, cancel := context.WithTimeout(ctx, between(r, 2*w.TTL, 6*w.TTL))
	defer cancel()
	handler := func(ctx context.Context) error {
		claim, err := w.claims.TryAcquire(ctx, key, append(slices.Clone(opts), etcdclaims.Reentrant())...)
		if err != nil {
			return err
		}
		defer func() { w.note(claim.Release(context.WithoutCancel(ctx))) }() // of this handle alone
		if r.IntN(20) == 0 {
			ctx = context.WithoutCancel(ctx) // does not stop when it is told to
		}
		return w.term(ctx, r, holding{claim, false})
	}
	var claim *etcdclaims.Claim
	var err error
	manual := false
	switch choice := r.IntN(100); {
	case choice < 45:
		return w.claims.Run(wait, key, handler, opts...)
	case choice < 55:
		return w.claims.TryRun(wait, key, handler, opts...)
	case choice < 75, choice >= 90 && len(opts) > 0:
		claim, err = w.claims.Acquire(wait, key, opts...)
	case choice < 90:
		claim, err = w.claims.TryAcquire(wait, key, opts...)
	default:
		manual = true
		claim, err = w.claims.Acquire(wait, key, etcdclaims.Manual())
	}
	if err != nil {
		return err
	}
	h := holding{claim, manual}
	err = w.term(claim.Context(), r, h)
	w.giveUp(ctx, r, h)
	return err
}

// giveUp releases the claim, and sometimes has one more effect, which must be refused.
func (w *worker) giveUp(ctx context.Context, r *rand.Rand, h holding) {
	// Giving up has a time of its own: the term's may be over.
	giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	w.note(h.Release(giving))
	if r.IntN(4) == 0 {
		w.effect(ctx, kindLate, h)
	}
}

// term is what a worker does while it owns a key.
func (w *worker) term(ctx context.Context, r *rand.Rand, h holding) error {
	if err := h.Check(); err != nil {
		return err
	}
	for range 1 + r.IntN(3) {
		retry.Sleep(ctx, between(r, 20*time.Millisecond, 250*time.Millisecond))
		if h.manual {
			renewing, cancel := context.WithTimeout(ctx, callTimeout)
			w.note(h.Renew(renewing))
			cancel()
		}
		if ctx.Err() == nil && h.Check() == nil {
			kind := kindTxn
			if r.IntN(2) == 0 {
				kind = kindHeld
			}
			w.effect(ctx, kind, h)
			continue
		}
		// Whoever believes its clock stops here. Whether the fence alone is
		// enough is what is to be shown, so write all the same.
		w.effect(ctx, kindLate, h)
		return h.Err()
	}
	return nil
}

func keyName(i int) string { return fmt.Sprintf("job-%d", i) }
