package items_test

import (
	"flag"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/items"
	"github.com/etcdclaims/claims/internal/explore/search"
)

var long = flag.Bool("long", false, "drop each condition; it takes some minutes")

// No order of events breaks what must hold, in the first states. `go run ./internal/explore` searches all.
func TestScopes(t *testing.T) {
	for _, scope := range items.Scopes() {
		t.Run(scope.Name, func(t *testing.T) {
			r := search.Run([]items.State{items.Start(scope)}, search.Options{Most: 2_000})
			t.Logf("%d states, %d events, %d deep, complete: %v, %v", r.States, r.Events, r.Depth, r.Complete, r.Elapsed)
			if r.Bad != nil {
				t.Error(r.Bad)
			}
		})
	}
}
