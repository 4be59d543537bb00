package world_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/explore/world"
)

// The documents say how many conditions are needed. `go run ./internal/explore -drop` compares that with what it finds.
func TestDroppedFigures(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	says := fmt.Sprintf("Of %d conditions, %d are needed", world.Conditions, world.Conditions-len(world.Unneeded))
	if !strings.Contains(string(page), says) {
		t.Errorf("docs/protocol.md does not say %q", says)
	}
}

// A condition is needed or not, as a search of the scopes that take it finds.
func TestNeeds(t *testing.T) {
	t.Parallel()
	is := func(name string) func(*world.Scope) bool { return func(s *world.Scope) bool { return s.Name == name } }
	for _, tt := range []struct {
		scope string
		drop  world.Condition
		found bool
	}{
		{"exclusive: one tries twice", world.Condition{Step: "Move", On: "own/k mod equal"}, true}, // at a depth
		{"shared: 2 try, a request sent twice", world.Condition{Step: "Take", On: "own/k#shared-… create equal"}, true},
		{"shared: 2 wait, a request sent twice", world.Condition{Step: "Leave", On: "own/k#shared-… value equal"}, false},
	} {
		scopes := world.Taken(is(tt.scope))[tt.drop]
		name, r := world.Needs(scopes, tt.drop, 500)
		if !tt.found && !world.Without(scopes[0], tt.drop, search.Options{Most: 500}).Complete {
			t.Errorf("%s is not complete without %v", tt.scope, tt.drop)
		}
		if _, has := world.Unneeded[tt.drop]; len(scopes) != 1 || (r != nil) != tt.found || has == tt.found || tt.found && name != tt.scope {
			t.Errorf("%s, %v: %d scopes, found %v in %q", tt.scope, tt.drop, len(scopes), r, name)
		}
	}
}
