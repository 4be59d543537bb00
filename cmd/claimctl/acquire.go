package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/retry"
)

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
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	} else if wait == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.commandTimeout)
		defer cancel()
	}
	if len(r.keys) > 1 {
		all, err := r.claimAll(ctx, wait != 0)
		if err != nil {
			return nil, r.notAcquired(wait, err)
		}
		h := claimsOf(all)
		h.maxHold, h.begun = r.maxHold, time.Now()
		return h, nil
	}
	if !r.once {
		claim, err := acquire(ctx, r.keys[0], forKey...)
		if err != nil {
			return nil, r.notAcquired(wait, err)
		}
		return &holding{Claim: claim, maxHold: r.maxHold, begun: time.Now(), slotted: r.slots > 0}, nil
	}
	job, err := begin(ctx, r.keys[0], forWork...)
	if err != nil {
		return nil, r.notAcquired(wait, err)
	}
	return &holding{Claim: job.Claim, work: job, maxHold: r.maxHold, begun: time.Now()}, nil
}

// claimAll claims several keys, all or none. To wait it tries again and again, about every
// half second: between two attempts it holds none of the keys and has no place in line, so
// that nobody waits for this process.
func (r *runner) claimAll(ctx context.Context, wait bool) (all []*etcdclaims.Claim, err error) {
	opts := []etcdclaims.AllOption{etcdclaims.MaxHold(r.maxHold)}
	if r.note != "" {
		opts = append(opts, etcdclaims.Note([]byte(r.note)))
	}
	if r.minHold != 0 {
		opts = append(opts, etcdclaims.MinHold(r.minHold))
	}
	var last error
	err = retry.Do(ctx, func(err error) bool {
		if last == nil || errors.Is(err, etcdclaims.ErrHeld) { // the end of ctx may cut the last attempt short
			last = err
		}
		return wait && (errors.Is(err, etcdclaims.ErrHeld) || errors.Is(err, etcdclaims.ErrUnknown) || isUnreachable(err))
	}, func() error {
		all, err = r.claims.TryAcquireAll(ctx, r.keys, opts...)
		return err
	})
	if wait && err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", last.Error(), ctx.Err()) // it is not busy, but waited for too long
	}
	return all, err
}
