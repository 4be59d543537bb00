package sched

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/retry"
	"go.uber.org/zap"
)

// campaign acquires the ownership again and again, until ctx ends or an error is final.
func campaign(ctx context.Context, b *starter) error {
	const what = "acquire group ownership"
	opts := []etcdclaims.AcquireOption{option.OwnKey{}, option.Labels{Labels: b.cfg.Labels}}
	if b.cfg.Suspectable {
		opts = append(opts, etcdclaims.Suspectable())
	}
	for try := 0; ctx.Err() == nil; try++ {
		claim, err := b.claims.Acquire(ctx, ownerKey(b.cfg.Group), opts...)
		switch {
		case errors.Is(err, etcdclaims.ErrClosed):
			return err
		case err != nil && ctx.Err() != nil:
			continue
		case err != nil:
			if b.outage.Judge(what, err, zap.String("key", ownerKey(b.cfg.Group))) {
				return err
			}
			retry.Pause(ctx, try)
			continue
		}
		b.outage.Succeed(what)
		try = 0
		if err := own(ctx, b, claim); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// own leads the group for one term.
func own(ctx context.Context, b *starter, claim *etcdclaims.Claim) error {
	fence := claim.Fence()
	fields := []zap.Field{zap.String("key", claim.Key()), zap.Int64("fence", fence)}
	b.epoch.Store(keyspace.Epoch(fence))
	b.elected.Add(1)
	b.log.Info("group ownership acquired", fields...)
	if hook := b.cfg.Hooks.Elected; hook != nil {
		hook(fence)
	}
	bound, unbind := claim.Bind(ctx)
	l := newLeadership(b, claim)
	b.owning.Store(true)
	b.retry(nil, true)
	err := l.lead(bound)
	b.owning.Store(false)
	unbind()
	lost := claim.Err()
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTime)
	defer cancel()
	if l.heir != "" {
		core.Of(b.claims).HandTo(claim, l.heir)
		b.log.Info("group ownership handed over to a process with more jobs", append(fields, zap.String("instance", l.heir))...)
	}
	if err := claim.Release(release); err != nil && lost == nil {
		lost = err
	}
	if lost != nil {
		b.log.Warn("group ownership lost", append(fields, zap.Error(lost))...)
	} else {
		b.log.Info("group ownership released", fields...)
	}
	if hook := b.cfg.Hooks.Deposed; hook != nil {
		hook(fence, lost)
	}
	return err
}
