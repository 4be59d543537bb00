package fencetest

import (
	"context"
	"testing"

	"github.com/etcdclaims/claims/fencing"
)

// Subject is the gate under test, and what else the suite may do with it. The
// suite calls all functions from several goroutines at once.
type Subject struct {
	// Gate is the gate under test. It is required, and must have admitted nothing
	// yet.
	Gate fencing.Gate

	// Restart returns the gate as a newly started process would open it; the
	// earlier gates stay in use. Nil means that the gate forgets when its process
	// ends, and skips the tests that depend on restarts.
	Restart func(t *testing.T) fencing.Gate

	// Issue returns the next token for the key. Set it for a gate that asks who
	// the present owner is, and so accepts only tokens that were issued; an
	// issued token then counts as admitted. Nil means that the suite makes its
	// own tokens.
	Issue func(t *testing.T, key string) fencing.Token

	// Write admits the token and performs the effect, as users of the gate are
	// advised to. It returns nil, or an error as Admit does. After an error the
	// effect may exist only if the error matches fencing.ErrUnknown. Nil means
	// that the gate is apart from any effect.
	Write func(ctx context.Context, t fencing.Token, effect string) error

	// Effects returns the effects of all writes for the key, in the order in
	// which they took place. It is required if Write is set.
	Effects func(ctx context.Context, key string) ([]string, error)

	// Crash does what Write does, but stops where a process that dies between the
	// admission and the effect would stop: it sends nothing more, and its
	// connections are gone. It returns an error only if the token was refused.
	// Nil means that nothing can come between the two.
	Crash func(ctx context.Context, t fencing.Token, effect string) error
}

// TestGate runs the suite. Each test calls open for a subject of its own.
func TestGate(t *testing.T, open func(t *testing.T) Subject) {
	for _, test := range []struct {
		name string
		run  func(s *trial)
	}{
		{"newer shuts out older", (*trial).newerShutsOutOlder},
		{"equal passes", (*trial).equalPasses},
		{"keys are independent", (*trial).keysAreIndependent},
		{"no fence is lost in rounding", (*trial).adjacentFences},
		{"invalid tokens are refused", (*trial).invalidTokens},
		{"a caller that is gone", (*trial).callerGone},
		{"owners race", (*trial).ownersRace},
		{"concurrent admits linearise", (*trial).concurrentAdmits},
		{"restart forgets nothing", (*trial).restart},
		{"stale writes have no effect", (*trial).staleWrites},
		{"effects come in the order of fences", (*trial).concurrentWrites},
		{"a crash opens no door", (*trial).crash},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := open(t)
			if s.Gate == nil {
				t.Fatal("fencetest: Subject.Gate is nil")
			}
			if (s.Write == nil) != (s.Effects == nil) || s.Crash != nil && s.Write == nil {
				t.Fatal("fencetest: set Subject.Effects if and only if Subject.Write is set, and Crash only with both")
			}
			test.run(&trial{T: t, Subject: s})
		})
	}
}
