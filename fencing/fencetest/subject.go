package fencetest

import (
	"context"
	"testing"

	"github.com/etcdclaims/claims/fencing"
)

// Subject is a gate, and what else the suite may do with it. All functions are
// called from several goroutines at once.
type Subject struct {
	// Gate has admitted nothing yet.
	Gate fencing.Gate

	// Restart returns the gate as a process that has just begun finds it; the
	// processes before go on beside it. nil says that the gate forgets with its
	// process, and skips what depends on that.
	Restart func(t *testing.T) fencing.Gate

	// Issue makes the next token for the key. Set it for a gate that asks who the
	// owner is, and so knows tokens only that were issued: then one that was
	// issued counts as admitted. Else the suite makes its own.
	Issue func(t *testing.T, key string) fencing.Token

	// Write admits the token and has the effect, as users of the gate are told
	// to do it. It returns nil, or an error as Admit does: then the effect may be
	// there only if the error matches fencing.ErrUnknown. nil says that the gate
	// is apart from any effect.
	Write func(ctx context.Context, t fencing.Token, effect string) error

	// Effects returns the effects of all writes for the key, in the order in
	// which they came about. Set it if Write is set.
	Effects func(ctx context.Context, key string) ([]string, error)

	// Crash does as Write does, and ends where a process that dies between the
	// admission and the effect would end: nothing more is sent, connections are
	// gone. It returns an error only if the token was refused. nil if there is
	// nothing between the two.
	Crash func(ctx context.Context, t fencing.Token, effect string) error
}

// TestGate runs the suite. Each of its tests opens a subject of its own.
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
				t.Fatal("fencetest: Subject.Effects comes with Write, and Crash with both")
			}
			test.run(&trial{T: t, Subject: s})
		})
	}
}
