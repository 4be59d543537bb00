package ticks

import (
	"testing"

	"github.com/etcdclaims/claims/internal/explore/search"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// No tick is admitted twice or lost, whatever becomes of requests and processes. `go run ./internal/explore` searches
// the scopes that take long.
func TestScopes(t *testing.T) {
	t.Parallel()
	for _, s := range Scopes() {
		if !s.Quick {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			r := search.Run(New(s), search.Options{})
			t.Logf("%d states, %d events, depth %d, complete %v, %v", r.States, r.Events, r.Depth, r.Complete, r.Elapsed)
			if r.Bad != nil {
				t.Error(r.Bad)
			}
		})
	}
}
