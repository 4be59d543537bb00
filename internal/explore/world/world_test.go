package world_test

import (
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/explore/world"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Nothing goes wrong in a selection of the scopes. `go run ./internal/explore` searches all of them.
func TestScopes(t *testing.T) {
	t.Parallel()
	for _, s := range world.Scopes() {
		if !s.IsQuick() {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r := search.Run([]world.World{world.New(&s)}, search.Options{Workers: 1})
			if r.Bad != nil {
				t.Errorf("%v", r.Bad)
			} else if !r.Complete || r.States < 100 {
				t.Errorf("%d states, complete: %v", r.States, r.Complete)
			}
		})
	}
}

// Each check can fail: a step that lacks a condition is found out, by the shortest way.
func TestChecks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		scope string
		drop  world.Condition
		want  string
	}{
		{"exclusive: 2 try, two faults", world.Condition{Step: "Take", On: "own/k create equal"}, "the claim of A1 was ended by the Take of another"},
		{"shared: 2 wait", world.Condition{Step: "Advance", On: "record mod equal"}, "has lost its claim, although nobody took it away"},
		{"exclusive: 2 wait", world.Condition{Step: "Advance", On: "epoch mod equal"}, "under the epoch 0, not 1"},
		{"exclusive: one tries twice", world.Condition{Step: "Confirm", On: "own/k value equal"}, "A2 was given the claim of A1"},
		{"exclusive: 2 wait, with notes and writes", world.Condition{Step: "ClearAway", On: "note/k mod equal"}, "the note of C1 was changed by the ClearAway"},
		{"exclusive: 2 try, two faults", world.Condition{Step: "Take", On: "void/… create equal"}, "/p/own/k is there for A1, of which its client knows nothing"},
		{"exclusive: 2 wait", world.Condition{Step: "hand-over", On: "wait/… mod equal"}, "waits for ever"},
		{"exclusive: 2 wait twice, and write", world.Condition{Step: "Commit", On: "own/k mod equal"}, "although its guard did not hold"},
		{"exclusive: 2 wait, one of each fault", world.Condition{Step: "Advance", On: "wait/… range create greater"}, "is before it"},
		{"exclusive: 2 wait, on a condition", world.Condition{Step: "Advance", On: "/absent create equal"}, "the condition of its caller does not hold"},
		{"exclusive and slots, their number changes", world.Condition{Step: "Advance", On: "record value equal"}, "was given to C1, and there are 0"},
	} {
		r := world.Without(scope(t, tt.scope), tt.drop, search.Options{})
		if r.Bad == nil || !strings.Contains(r.Bad.Error(), tt.want) {
			t.Errorf("%s, %v: %v; want %q", tt.scope, tt.drop, r.Bad, tt.want)
		}
	}
}

func scope(t *testing.T, name string) world.Scope {
	t.Helper()
	for _, s := range world.Scopes() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no scope %q", name)
	return world.Scope{}
}
