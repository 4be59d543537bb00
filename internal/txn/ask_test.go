package txn_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/txn"
)

func answerOf(tb testing.TB, a *txn.Ask[string, int]) int {
	tb.Helper()
	select {
	case <-a.Answered():
		return a.Answer()
	default:
		return 0
	}
}

// Callers share the first answer to an ask that has not left when they come.
func TestAskIsShared(t *testing.T) {
	t.Parallel()
	var asks txn.Asks[string, int]
	a, first := asks.Join("k")
	b, second := asks.Join("k")
	other, otherFirst := asks.Join("another")
	if !first || second || a != b || !otherFirst || other == a {
		t.Fatalf("the first of an ask: %v, then %v, of another %v", first, second, otherFirst)
	}
	if got := answerOf(t, b); got != 0 {
		t.Errorf("answered %d before there was an answer", got)
	}
	asks.Answer(a, func() int { return 1 })
	asks.Answer(a, func() int { return 2 })
	if got := answerOf(t, b); got != 1 {
		t.Errorf("answered %d, want 1", got)
	}
	if c, first := asks.Join("k"); !first || c == a {
		t.Error("an ask that was answered is shared")
	}
}

// Who comes after the request has left asks anew, and the answers are not confused.
func TestLaterCallerHasAnAskOfItsOwn(t *testing.T) {
	t.Parallel()
	var asks txn.Asks[string, int]
	a, _ := asks.Join("k")
	shares, _ := asks.Join("k")
	a.Departed.Store(true)
	b, first := asks.Join("k")
	if !first || b == a {
		t.Fatal("an ask that has left is shared")
	}
	asks.Answer(a, func() int { return 1 })
	c, first := asks.Join("k")
	if first || c != b {
		t.Error("the later ask ended with the first")
	}
	asks.Answer(b, func() int { return 2 })
	if got := answerOf(t, shares); got != 1 {
		t.Errorf("who shares the first ask was answered %d, want 1", got)
	}
	if got := answerOf(t, c); got != 2 {
		t.Errorf("who shares the second ask was answered %d, want 2", got)
	}
}

// No answer is made for an ask that nobody shares.
func TestAnswerNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	var asks txn.Asks[string, int]
	a, _ := asks.Join("k")
	asks.Answer(a, func() int {
		t.Error("an answer was made")
		return 1
	})
}
