package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/passthrough"
)

// SingletonConfig configures Singleton. The zero value is usable.
type SingletonConfig struct {
	// Backoff returns how long to wait before contesting the key again. attempt
	// counts the attempts in a row, from 1, that ended without leading or lost
	// the key. A term of a minute or more ends the row, so that a leader that
	// loses its key again and again waits longer each time. A shorter term that
	// MaxHold ended counts, too. Default: a random duration of up to 250 ms,
	// doubling up to 15 s.
	Backoff func(attempt int) time.Duration
	// Started is called at the start of each term, before the function is called.
	Started func(fencing.Token)
	// Stopped is called when the function has returned or panics, and before the
	// key is released. Unless the claim was lost, no other leader has started by
	// then. The error is the cause of the function's context if that has ended,
	// and otherwise what the function returned.
	Stopped func(fencing.Token, error)
	// Failed is called with the reason why the key could not be acquired, or was
	// lost. Singleton tries again, so no other caller sees that error. Failed is
	// called after each such attempt. It is also called once for each outage of etcd
	// while this process waits for the key. For that, claims must have a method
	// Unreachable() error, as *etcdclaims.Client has. Calls do not overlap, and
	// end before Singleton returns. Default: the reasons are logged, by the Logger of an
	// *etcdclaims.Client, which logs outages itself.
	Failed func(error)
}

// Singleton calls fn while this process holds the key. Of all processes that call
// it, one leads at a time. Singleton waits in line for the key. When the key was
// lost and fn has returned, it contests the key again. Each call of fn is a new
// term with a greater fence, which the context of fn carries. The context ends
// with the claim, some time before its deadline, so that fn can finish.
//
// Singleton returns
//
//   - nil when fn returns nil while it leads: the next process in line then leads,
//   - the error of fn when fn returns one while it leads; wrap fn to continue after errors,
//   - when ctx ends, after fn has returned: the error of fn; if it did not lead, an error that matches the
//     cause of ctx (errors.Is). Its text has the last failure, if an attempt failed before. It does not match that,
//   - an error that matches etcdclaims.ErrClosed if claims is closed,
//   - an error that matches ErrInvalidKey if the key is invalid.
//
// It retries after everything else, also after a missing permission. SingletonConfig.Failed receives the reason.
//
// To hand over, for example on a deploy, cancel ctx. When fn has returned, the key is
// released. If another process is in line, the key passes to it in one transaction.
// Otherwise the key is free. A process that dies is replaced
// when its lease has expired (etcdclaims.Config.TTL). With etcdclaims.Suspectable, it is
// replaced in about half a second; use that if all effects of fn are fenced.
//
// With etcdclaims.Prefer, the key passes to the process in line with the greatest preference:
// one in the near zone, or with the newest version. Give the option to all processes. No
// leader gives way to a process that comes later. If a leader dies, the first in line leads.
//
// A function that continues after its context has ended is a zombie, and its
// fence is superseded. Singleton neither returns nor contests the key before fn
// returns, so no process runs fn twice at once.
//
// If claims is a passthrough (see etcdclaims.NewPassthrough), every process leads at once, with
// fence 0. If claims is nil, or a nil *etcdclaims.Client, Singleton returns an error. It panics
// if fn is nil.
func Singleton(ctx context.Context, claims Claims, key string, fn func(ctx context.Context) error,
	cfg SingletonConfig, opts ...AcquireOption,
) error {
	if fn == nil {
		panic("middleware: Singleton needs a function")
	}
	if err := cmp.Or(passthrough.Check(claims), checkClaimed(key)); err != nil {
		return leadingError(key, err)
	}
	if cfg.Backoff == nil {
		cfg.Backoff = fullJitter(250*time.Millisecond, 15*time.Second)
	}
	if passthrough.Of(claims) {
		l := leader{fn: fn, cfg: cfg}
		return l.lead(fencing.NewContext(ctx, fencing.Token{Key: key}))
	}
	outage := outageWatch{key: key, failed: cfg.Failed}
	outage.claims, _ = claims.(reachability)
	if cfg.Failed == nil { // an outage the client logs, for all that wait
		cfg.Failed = func(err error) { attach.Of(claims).Warn("not leading; trying again", err, "key", key) }
	}
	var failure error // of the last attempt that failed
	for attempt := 1; ; attempt++ {
		l := leader{fn: fn, cfg: cfg}
		var own error // of fn, which may be about another claim
		waited := outage.begin()
		err := claims.Run(ctx, key, func(ctx context.Context) error { waited(); own = l.lead(ctx); return nil }, opts...)
		waited()
		lost, closed := errors.Is(err, fencing.ErrLost), errors.Is(err, attach.ErrClosed)
		err = both(own, err)
		switch {
		case l.led && ctx.Err() != nil, l.led && !l.stopped && !lost:
			if !lost && own != nil {
				return own
			}
			return err
		case ctx.Err() != nil:
			if err != nil && !errors.Is(err, ctx.Err()) && !errors.Is(err, context.Cause(ctx)) {
				failure = err
			}
			return endedError(ctx, key, failure)
		case closed:
			return err
		}
		if l.lasted >= steady {
			attempt = 1
		}
		if err == nil {
			err = l.stopCause
		}
		failure = err
		cfg.Failed(leadingError(key, err))
		if !sleep(ctx, cfg.Backoff(attempt)) {
			return endedError(ctx, key, failure)
		}
	}
}

// endedError returns an error that matches the cause of ctx, and has the failure in its text only: an
// earlier loss is no loss now.
func endedError(ctx context.Context, key string, failure error) error {
	err := leadingError(key, context.Cause(ctx))
	if failure == nil {
		return err
	}
	return fmt.Errorf("%w; last failure: %s", err, errtext.Inner(failure))
}

func leadingError(key string, err error) error {
	return errtext.Wrap(fmt.Sprintf("middleware: lead %q", key), err)
}

// steady is how long a term must last so that a later loss starts a new row of
// attempts.
const steady = time.Minute

// both returns an error that matches both errors, in one line.
func both(first, second error) error {
	if first == nil || second == nil {
		return cmp.Or(first, second)
	}
	return fmt.Errorf("%w; %w", first, second)
}

// leader is one term.
type leader struct {
	fn  func(ctx context.Context) error
	cfg SingletonConfig

	led       bool
	lasted    time.Duration
	stopped   bool  // the context had ended when fn returned
	stopCause error // its cause
}

func (l *leader) lead(ctx context.Context) (err error) {
	l.led = true
	began := time.Now()
	token, _ := fencing.FromContext(ctx)
	if l.cfg.Started != nil {
		l.cfg.Started(token)
	}
	defer func() {
		l.stopped, l.stopCause, l.lasted = ctx.Err() != nil, context.Cause(ctx), time.Since(began)
		if l.cfg.Stopped == nil {
			return
		}
		why := err
		if l.stopped {
			why = l.stopCause
		}
		l.cfg.Stopped(token, why)
	}()
	return l.fn(ctx)
}

// fullJitter returns a backoff that doubles from base up to limit, and waits a random
// part of that. So processes that lost the same server do not return together.
func fullJitter(base, limit time.Duration) func(attempt int) time.Duration {
	return func(attempt int) time.Duration {
		d := limit
		if shift := max(attempt-1, 0); shift < 16 {
			d = min(base<<shift, limit)
		}
		return rand.N(d) + 1
	}
}

// sleep waits for d, and reports whether it did so before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
