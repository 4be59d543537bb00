package objectguard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/fencing"
)

const (
	// maxRounds is how often other writers may win before a change gives up.
	maxRounds = 16
	// maxSends is how often one write is sent while its outcome is unknown.
	maxSends = 8
	// Pauses start with the time that a request took, and double each time.
	shortestPause = time.Millisecond
	longestPause  = 2 * time.Second
)

// errNothingToDo is returned by an edit that leaves the object as it is.
var errNothingToDo = errors.New("objectguard: nothing to do")

// change replaces the object by what edit makes of it, under the token. was is
// the expected state of the object; nil means that it is read first.
func (o *Object) change(ctx context.Context, t fencing.Token, was *state, edit func(envelope) (envelope, error)) error {
	if err := t.Validate(); err != nil {
		return o.errorf("%w", err)
	}
	if err := ctx.Err(); err != nil {
		return o.errorf("%w", err)
	}
	for round := range maxRounds {
		begun := time.Now()
		if was == nil {
			var err error
			if was, err = o.read(ctx); err != nil {
				return err
			}
		}
		if err := o.judge(was, t); err != nil {
			return err
		}
		next, err := edit(was.envelope)
		if errors.Is(err, errNothingToDo) {
			return nil
		}
		if err != nil {
			return err
		}
		if was, err = o.put(ctx, was, next.follow(was.envelope, t)); was == nil {
			return err
		}
		// The object may change during the pause, so it is read again afterwards,
		// unless the token is stale already.
		if err := o.judge(was, t); err != nil {
			return err
		}
		was = nil
		if err := pause(ctx, round, time.Since(begun)); err != nil {
			return o.errorf("%w; nothing was written: %w", ErrConflict, err)
		}
	}
	return o.errorf("%w, %d times in a row; nothing was written: try again, with fewer concurrent writers", ErrConflict, maxRounds)
}

// put sends one write until its outcome is known. It returns nil and nil if the
// write was done. It returns the present state of the object if the write was not
// done and never will be. Otherwise it returns an error, which matches
// fencing.ErrUnknown unless the store refused the write.
func (o *Object) put(ctx context.Context, was *state, next envelope) (instead *state, err error) {
	content, err := next.encode()
	if err != nil {
		return nil, o.errorf("%w", err)
	}
	var cause error
	var open bool // a request that was sent may still be carried out
	for send := range maxSends {
		begun := time.Now()
		version, err := o.send(ctx, content, was.version)
		switch {
		case err == nil:
			o.wrote(version, next)
			return nil, nil
		case errors.Is(err, ErrRefused) && !open:
			return nil, o.errorf("write it: %w", err)
		case errors.Is(err, ErrConflict), errors.Is(err, ErrNotFound):
			o.wrote("", envelope{})
			now, lookErr := o.read(ctx)
			if errors.Is(lookErr, ErrForeign) {
				return nil, o.unknown(lookErr)
			}
			if lookErr != nil {
				err = lookErr
				break
			}
			switch fate := now.fateOf(next, was.envelope); {
			case fate == done:
				return nil, nil
			case fate == never, fate == pending && !open && now.version != was.version:
				return now, nil // the version to follow is gone, even if the content is the same
			case fate == unknown:
				return nil, o.unknown(fmt.Errorf("too many writes came before it was read back, "+
					"or another program removed the object: %w", untold(err)))
			}
		}
		open, cause = true, untold(err)
		if err := pause(ctx, send, time.Since(begun)); err != nil {
			cause = fmt.Errorf("%w (%w)", cause, err)
			break
		}
	}
	return nil, o.unknown(cause)
}

// untold returns err without the match for "not done", which is true of one
// attempt and not of all.
func untold(err error) error {
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrRefused) {
		return errors.New(err.Error())
	}
	return err
}

func (o *Object) unknown(cause error) error {
	return o.errorf("%w: the write may have been carried out, or may still be; "+
		"read the object before you write again: %w", fencing.ErrUnknown, cause)
}

func (o *Object) send(ctx context.Context, content []byte, version string) (string, error) {
	if version == "" {
		return o.store.Create(ctx, o.name, content)
	}
	return o.store.Replace(ctx, o.name, content, version)
}

// pause waits after the n-th attempt, counted from 0, which took the given time.
func pause(ctx context.Context, n int, took time.Duration) error {
	window := min(max(took, shortestPause)<<min(n, 10), longestPause)
	timer := time.NewTimer(rand.N(window))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
