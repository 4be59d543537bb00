package items_test

import (
	"flag"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/items"
	"github.com/etcdclaims/claims/internal/explore/search"
)

var long = flag.Bool("long", false, "search all scopes to their ends; it takes some minutes")

// No order of events breaks what must hold.
func TestScopes(t *testing.T) {
	for _, scope := range items.Scopes() {
		t.Run(scope.Name, func(t *testing.T) {
			o := search.Options{Most: 2_000}
			if *long {
				o.Most = 0
			}
			r := search.Run([]items.State{items.Start(scope)}, o)
			t.Logf("%d states, %d events, %d deep, complete: %v, %v", r.States, r.Events, r.Depth, r.Complete, r.Elapsed)
			if r.Bad != nil {
				t.Error(r.Bad)
			}
		})
	}
}
