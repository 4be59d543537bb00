package sched

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/oplog"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/retry"
	"go.uber.org/zap"
)

// campaign acquires the ownership again and again, until ctx ends or an error is final.
func (s *Scheduler) campaign(ctx context.Context) error {
	const what = "acquire group ownership"
	opts := []etcdclaims.AcquireOption{option.OwnKey{}}
	if s.cfg.Suspectable {
		opts = append(opts, etcdclaims.Suspectable())
	}
	for try := 0; ctx.Err() == nil; try++ {
		claim, err := s.claims.Acquire(ctx, ownerKey(s.cfg.Group), opts...)
		switch {
		case errors.Is(err, etcdclaims.ErrClosed):
			return err
		case oplog.IsDenied(err):
			if s.outage.Denied(what, err, zap.String("key", ownerKey(s.cfg.Group))) {
				return err
			}
			retry.Pause(ctx, try)
			continue
		case err != nil:
			if ctx.Err() == nil {
				s.outage.Fail(what, err, zap.String("key", ownerKey(s.cfg.Group)))
				retry.Pause(ctx, try)
			}
			continue
		}
		s.outage.Succeed(what)
		try = 0
		if err := s.own(ctx, claim); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// own leads the group for one term.
func (s *Scheduler) own(ctx context.Context, claim *etcdclaims.Claim) error {
	fence := claim.Fence()
	fields := []zap.Field{zap.String("key", claim.Key()), zap.Int64("fence", fence)}
	s.epoch.Store(keyspace.Epoch(fence))
	s.log.Info("group ownership acquired", fields...)
	if hook := s.cfg.Hooks.Elected; hook != nil {
		hook(fence)
	}
	bound, unbind := claim.Bind(ctx)
	l := newLeadership(s, claim)
	s.owning.Store(true)
	s.retryAll()
	err := l.lead(bound)
	s.owning.Store(false)
	unbind()
	lost := claim.Err()
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTime)
	defer cancel()
	if err := claim.Release(release); err != nil && lost == nil {
		lost = err
	}
	if lost != nil {
		s.log.Warn("group ownership lost", append(fields, zap.Error(lost))...)
	} else {
		s.log.Info("group ownership released", fields...)
	}
	if hook := s.cfg.Hooks.Deposed; hook != nil {
		hook(fence, lost)
	}
	return err
}
