package middleware

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/fencing"
)

// SingletonConfig says how a leader is kept running. The zero value is a good one.
type SingletonConfig struct {
	// Backoff says how long to wait before the key is contested again, after the
	// attempt-th attempt in a row, 1 being the first, that ended by a loss or
	// without leading. Default: 250 ms doubling up to 15 s, all of it random.
	Backoff func(attempt int) time.Duration
	// Started is told of each term, before the function is called.
	Started func(fencing.Token)
	// Stopped is told when the function has returned, or panics, and before the
	// key is given up: unless a claim was lost, no other leader has started by
	// then. The error is why the context of the function had ended, and else what
	// it returned.
	Stopped func(fencing.Token, error)
	// Failed is told why the key was not to be had, or was lost: what is
	// otherwise seen by nobody, since it is tried again. It gets what ended an
	// attempt.
	Failed func(error)
}

// Singleton calls fn while this process holds the key: in one process at a time,
// of all that call it, for as long as that lasts. It waits in line for the key,
// and when it has lost it, and fn has returned, it contests it again. Each time fn
// is called it is a new term, with a greater fence, which the context of fn carries:
// who is late is known by it. The context ends with the claim, a drain before its
// deadline.
//
// It returns nil when fn has returned nil, by its own will, while it led: it is
// done here, and the next in line leads. An error of fn, while it led, is returned
// as it is, for whoever runs the process to judge; wrap fn to go on after errors.
// When ctx ends, it returns when fn has, with the error of fn, or if it did not
// lead with the cause of ctx. It returns an error, too, if claims are closed
// (fencing.ErrClosed), or the key is invalid (ErrInvalidKey). All else is tried
// again.
//
// To hand over, as on a deploy, end ctx: fn drains, and when it has returned the
// key goes to the first in line in the one transaction that gives it up. There is
// no moment without a leader's claim in between, and no two. A process that dies
// is replaced when its lease has lapsed (etcdclaims.Config's TTL).
//
// A function that goes on after its context has ended is a zombie: its fence is
// passed, and Singleton does not return, nor contest the key, before it does. So
// no process runs two.
//
// With claims that are nil or a passthrough every process leads at once, with
// fence 0. Singleton panics if fn is nil.
func Singleton[O any](ctx context.Context, claims Claims[O], key string, fn func(ctx context.Context) error, cfg SingletonConfig, opts ...O) error {
	if fn == nil {
		panic("middleware: Singleton needs a function")
	}
	if err := checkKey(key); err != nil {
		return err
	}
	if cfg.Backoff == nil {
		cfg.Backoff = fullJitter(250*time.Millisecond, 15*time.Second)
	}
	if passes(claims) {
		l := leader{fn: fn, cfg: cfg}
		return l.lead(fencing.NewContext(ctx, fencing.Token{Key: key}))
	}
	for attempt := 1; ; attempt++ {
		l := leader{fn: fn, cfg: cfg}
		var own error // of fn: it may be about another claim
		err := claims.Run(ctx, key, func(ctx context.Context) error { own = l.lead(ctx); return nil }, opts...)
		lost := errors.Is(err, fencing.ErrLost)
		err = errors.Join(own, err)
		switch {
		case l.led && ctx.Err() != nil, l.led && !l.told && !lost:
			if !lost && own != nil {
				return own
			}
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, fencing.ErrClosed):
			return err
		}
		if l.led {
			attempt = 1
		}
		if cfg.Failed != nil {
			if err == nil {
				err = l.why
			}
			cfg.Failed(fmt.Errorf("middleware: leading under %q: %w", key, err))
		}
		if !sleep(ctx, cfg.Backoff(attempt)) {
			return context.Cause(ctx)
		}
	}
}

// leader is one term of leading.
type leader struct {
	fn  func(ctx context.Context) error
	cfg SingletonConfig

	led  bool
	told bool  // it was told to stop before it returned
	why  error // it was told
}

func (l *leader) lead(ctx context.Context) (err error) {
	l.led = true
	token, _ := fencing.FromContext(ctx)
	if l.cfg.Started != nil {
		l.cfg.Started(token)
	}
	defer func() {
		l.told, l.why = ctx.Err() != nil, context.Cause(ctx)
		if l.cfg.Stopped == nil {
			return
		}
		why := err
		if l.told {
			why = l.why
		}
		l.cfg.Stopped(token, why)
	}()
	return l.fn(ctx)
}

// fullJitter doubles from base up to limit, and takes a random time up to that, so
// that those who lost the same server do not come back together.
func fullJitter(base, limit time.Duration) func(attempt int) time.Duration {
	return func(attempt int) time.Duration {
		d := limit
		if shift := max(attempt-1, 0); shift < 16 {
			d = min(base<<shift, limit)
		}
		return rand.N(d) + 1
	}
}

// sleep waits, and reports whether it was for as long as it should.
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
