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

// Keys that the workers share. Holders of some can be suspected.
const (
	keyCount     = 8
	suspectCount = 3
)

func keyName(i int) string     { return fmt.Sprintf("job-%d", i) }
func suspectName(i int) string { return fmt.Sprintf("suspect-%d", i) }

// suspectableIn returns the option for a claim whose holder can be suspected, but for one
// claim in n.
func suspectableIn(r *rand.Rand, n int) []etcdclaims.AcquireOption {
	if r.IntN(n) == 0 {
		return nil
	}
	return []etcdclaims.AcquireOption{etcdclaims.Suspectable()}
}

// takeTurn claims one of the keys.
func (w *worker) takeTurn(ctx context.Context, r *rand.Rand) error {
	return w.turn(ctx, r, keyName(r.IntN(keyCount)))
}

// takeSuspectable claims a key whose holders can be suspected.
func (w *worker) takeSuspectable(ctx context.Context, r *rand.Rand) error {
	return w.turn(ctx, r, suspectName(r.IntN(suspectCount)), suspectableIn(r, 10)...)
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
		return w.term(ctx, r, claim, false)
	}
	var claim *etcdclaims.Claim
	var err error
	choice := r.IntN(100)
	manual := choice >= 90 && len(opts) == 0
	switch {
	case choice < 45:
		return w.claims.Run(wait, key, handler, opts...)
	case choice < 55:
		return w.claims.TryRun(wait, key, handler, opts...)
	case choice < 70:
		claim, err = w.claims.TryAcquire(wait, key, opts...)
	case manual:
		claim, err = w.claims.Acquire(wait, key, etcdclaims.Manual())
	default:
		claim, err = w.claims.Acquire(wait, key, opts...)
	}
	if err != nil {
		return err
	}
	err = w.term(claim.Context(), r, claim, manual)
	// Giving up has a time of its own: the term's may be over.
	giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	w.note(claim.Release(giving))
	if r.IntN(4) == 0 {
		w.effect(giving, kindLate, claim) // which must be refused
	}
	return err
}

// term is what a worker does while it owns a key.
func (w *worker) term(ctx context.Context, r *rand.Rand, claim *etcdclaims.Claim, manual bool) error {
	if err := claim.Check(); err != nil {
		return err
	}
	for range 1 + r.IntN(3) {
		retry.Sleep(ctx, between(r, 20*time.Millisecond, 250*time.Millisecond))
		if manual {
			renewing, cancel := context.WithTimeout(ctx, callTimeout)
			w.note(claim.Renew(renewing))
			cancel()
		}
		if ctx.Err() != nil || claim.Check() != nil {
			// Whoever believes its clock stops here. Whether the fence alone is
			// enough is what is to be shown, so write all the same.
			w.effect(ctx, kindLate, claim)
			return claim.Err()
		}
		w.effect(ctx, []string{kindTxn, kindHeld}[r.IntN(2)], claim)
	}
	return nil
}
