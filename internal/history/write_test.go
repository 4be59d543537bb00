package history_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/history"
)

func TestWrite(t *testing.T) {
	for _, c := range []struct {
		outcome history.Outcome
		found   int
		right   bool
	}{
		{history.OutcomeDone, 1, true},
		{history.OutcomeDone, 0, false},
		{history.OutcomeDone, 2, false},
		{history.OutcomeRefused, 0, true},
		{history.OutcomeRefused, 1, false},
		{history.OutcomeUnknown, 0, true},
		{history.OutcomeUnknown, 1, true},
		{history.OutcomeUnknown, 2, false},
	} {
		v := history.Write{Name: "w", Token: tok(7), Outcome: c.outcome, Found: c.found}.Check()
		switch {
		case (v == nil) != c.right:
			t.Errorf("%s and found %d times: %v", c.outcome, c.found, v)
		case v != nil && (v.Rule != history.AsAnswered || v.Key != "k" || v.Fences[0] != 7):
			t.Errorf("%+v", v)
		}
	}
}
