package world_test

import (
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/explore/world"
)

// The checks of work can fail, too.
func TestChecksOfWork(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		scope string
		drop  world.Condition
		want  string
	}{
		{"work: 2 complete, two faults", world.Condition{Step: "Undo", N: 0}, "attempt 1 was put back while its holder has it"},
		{"work: 2 complete, two faults", world.Condition{Step: "Take", N: 1}, "of which its client knows nothing"},
		{"work: 2 at most once, two faults", world.Condition{Step: "Take", N: 3}, "work that may run at most once was begun 2 times"},
	} {
		r := world.Without(scope(t, tt.scope), tt.drop, search.Options{})
		if r.Bad == nil || !strings.Contains(r.Bad.Error(), tt.want) {
			t.Errorf("%s without condition %d of its %s: %v; want %q", tt.scope, tt.drop.N, tt.drop.Step, r.Bad, tt.want)
		}
	}
}
