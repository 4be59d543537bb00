package ticks

import (
	"flag"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/search"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	long = flag.Bool("long", false, "visit all states of all scopes, which takes minutes")
	most = flag.Int("most", 0, "visit at most so many states of a scope, 0 for all")
)

// No tick is admitted twice or lost, whatever becomes of requests and processes.
func TestScopes(t *testing.T) {
	t.Parallel()
	for _, s := range Scopes() {
		t.Run(s.Name, func(t *testing.T) {
			if !s.Quick && !*long {
				t.Skip("takes long")
			}
			r := search.Run(New(s), search.Options{Most: *most})
			t.Logf("%d states, %d events, depth %d, complete %v, %v", r.States, r.Events, r.Depth, r.Complete, r.Elapsed)
			if r.Bad != nil {
				t.Error(r.Bad)
			}
		})
	}
}
