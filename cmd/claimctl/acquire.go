package main

import (
	"cmp"
	"context"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
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
