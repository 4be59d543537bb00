package world_test

import (
	"flag"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/explore/world"
)

var most = flag.Int("most", 200000, "")

func TestTry(t *testing.T) {
	for _, s := range world.Scopes() {
		t.Run(s.Name, func(t *testing.T) {
			r := search.Run([]world.World{world.New(&s)}, search.Options{Most: *most})
			t.Logf("%d states, %d events, depth %d, complete %v, %v, %.0f events/s", r.States, r.Events, r.Depth, r.Complete, r.Elapsed, float64(r.Events)/r.Elapsed.Seconds())
			if r.Bad != nil {
				t.Errorf("%v", r.Bad)
			}
		})
	}
}
