package fencetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing"
)

// trial is one test of one subject.
type trial struct {
	*testing.T
	Subject

	mu     sync.Mutex
	issued int64 // the last fence that the suite made
}

// patience is how long one call may take, on a busy machine.
const patience = 30 * time.Second

// next returns a token for the key that is newer than all earlier ones.
func (s *trial) next(key string) fencing.Token {
	s.Helper()
	if s.Issue != nil {
		t := s.Issue(s.T, key)
		if t.Key != key || t.Validate() != nil {
			s.Fatalf("Issue returned %v for key %q", t, key)
		}
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued += 1 + rand.Int64N(3)
	return fencing.Token{Key: key, Fence: s.issued}
}

// tokens returns n tokens, each newer than the one before.
func (s *trial) tokens(key string, n int) []fencing.Token {
	s.Helper()
	ts := make([]fencing.Token, n)
	for i := range ts {
		ts[i] = s.next(key)
		if i > 0 && ts[i].Fence <= ts[i-1].Fence {
			s.Fatalf("Issue returned %v after %v", ts[i], ts[i-1])
		}
	}
	return ts
}

// settled calls do until it is admitted or refused, or returns an unknown
// outcome. Any other error, such as a database's serialization failure, has
// changed nothing and is no fault.
func (s *trial) settled(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	for {
		err := do(ctx)
		if _, refused := fencing.RefusalOf(err); err == nil || refused {
			return err
		}
		select {
		case <-ctx.Done():
			s.Errorf("neither admitted nor refused in %v: %v", patience, err)
			return err
		case <-time.After(time.Millisecond + rand.N(4*time.Millisecond)): // for the other to get out of the way
		}
	}
}

// try calls Admit until the outcome is known: an admission may be repeated.
func (s *trial) try(g fencing.Gate, t fencing.Token) error {
	return s.settled(func(ctx context.Context) error { return known(g.Admit(ctx, t)) })
}

// known turns an unknown outcome into an error that makes settled call again.
func known(err error) error {
	if errors.Is(err, fencing.ErrUnknown) {
		return errors.New(err.Error())
	}
	return err
}

// write makes one write, and returns why it has no effect, or that this is
// unknown.
func (s *trial) write(t fencing.Token, effect string) error {
	return s.settled(func(ctx context.Context) error { return s.Write(ctx, t, effect) })
}

// admits checks that the token is admitted.
func (s *trial) admits(g fencing.Gate, t fencing.Token) {
	s.Helper()
	if err := s.try(g, t); err != nil {
		s.Errorf("%v is refused: %v", t, err)
	}
}

// refuses checks that the token is refused as stale. newest is the greatest fence
// that was admitted.
func (s *trial) refuses(g fencing.Gate, t fencing.Token, newest int64) {
	s.Helper()
	s.stale(s.try(g, t), t, newest)
}

// stale checks that err reports the token as stale, with one of these fences as
// the newest.
func (s *trial) stale(err error, t fencing.Token, newest ...int64) {
	s.Helper()
	if err == nil {
		s.Errorf("%v is admitted after fence %d", t, newest)
		return
	}
	if !errors.Is(err, fencing.ErrStale) {
		s.Errorf("%v after fence %d: %v, which does not match ErrStale", t, newest, err)
		return
	}
	var stale *fencing.StaleError
	if !errors.As(err, &stale) {
		s.Errorf("%v is refused without a *fencing.StaleError: %v", t, err)
		return
	}
	if stale.Token != t || stale.Newest != 0 && !slices.Contains(newest, stale.Newest) {
		s.Errorf("%v after fence %d is refused with %+v", t, newest, stale)
	}
}

// effects checks that the key has exactly these effects, in this order.
func (s *trial) effects(key string, want ...string) {
	s.Helper()
	got, err := s.Effects(s.Context(), key)
	if err != nil {
		s.Fatal(err)
	}
	if !slices.Equal(got, want) {
		s.Errorf("the effects are %q, want %q", got, want)
	}
}
