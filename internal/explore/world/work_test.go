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
		{"work: 2 complete", world.Condition{Step: "Undo", On: "work/k value equal"}, "attempt 1 was put back while its holder has it"},
		{"work: 2 complete, two faults", world.Condition{Step: "Take", On: "void/… create equal"}, "of which its client knows nothing"},
		{"work: 2 at most once, two faults", world.Condition{Step: "Take", On: "work/k mod equal"}, "work that may run at most once was begun 2 times"},
	} {
		r := world.Without(scope(t, tt.scope), tt.drop, search.Options{})
		if r.Bad == nil || !strings.Contains(r.Bad.Error(), tt.want) {
			t.Errorf("%s, %v: %v; want %q", tt.scope, tt.drop, r.Bad, tt.want)
		}
	}
}
