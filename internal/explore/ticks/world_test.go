package ticks

import (
	"flag"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/tick"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	long = flag.Bool("long", false, "visit all states of all scopes, which takes minutes")
	most = flag.Int("most", 0, "visit at most so many states of a scope, 0 for all")
)

// scopes are those whose states are all visited; the quick ones by `go test`.
var scopes = []struct {
	name  string
	quick bool
	Scope
}{
	{"skip: one fault", true, Scope{Overlap: tick.Skip, Ticks: 2, Faults: 1}},
	{"skip: one end", true, Scope{Overlap: tick.Skip, Ticks: 2, Ends: 1}},
	{"skip: one pause", true, Scope{Overlap: tick.Skip, Ticks: 2, Pauses: 1}},
	{"skip: ownership taken away", true, Scope{Overlap: tick.Skip, Ticks: 2, Forced: 1}},
	{"skip: one deletion", true, Scope{Overlap: tick.Skip, Ticks: 2, Deleted: 1}},
	{"skip: three ticks, one fault", false, Scope{Overlap: tick.Skip, Ticks: 3, Faults: 1}},
	{"skip: three ticks, one end", false, Scope{Overlap: tick.Skip, Ticks: 3, Ends: 1}},
	{"skip, again: one fault, one end", false, Scope{Overlap: tick.Skip, Ticks: 2, Faults: 1, Ends: 1, Again: true}},
	{"skip, again: two ends", false, Scope{Overlap: tick.Skip, Ticks: 2, Ends: 2, Again: true}},
	{"buffer: one fault, one pause", false, Scope{Overlap: tick.BufferAll, Ticks: 2, Faults: 1, Pauses: 1}},
	{"buffer: one fault, one deletion", false, Scope{Overlap: tick.BufferAll, Ticks: 2, Faults: 1, Deleted: 1}},
	{"buffer, spread: one fault", false, Scope{Overlap: tick.BufferAll, Ticks: 2, Faults: 1, Spread: true}},
	{"buffer, spread, again: one end", false, Scope{Overlap: tick.BufferAll, Ticks: 2, Ends: 1, Spread: true, Again: true}},
	{"cancel, again: one end", false, Scope{Overlap: tick.CancelRunning, Ticks: 2, Ends: 1, Again: true}},
	{"allow, spread: one fault", false, Scope{Overlap: tick.Allow, Ticks: 2, Faults: 1, Spread: true}},
}

// No tick is admitted twice or lost, whatever becomes of requests and processes.
func TestScopes(t *testing.T) {
	t.Parallel()
	for _, s := range scopes {
		t.Run(s.name, func(t *testing.T) {
			if !s.quick && !*long {
				t.Skip("takes long")
			}
			r := search.Run(New(s.Scope), search.Options{Most: *most})
			t.Logf("%d states, %d events, depth %d, complete %v, %v", r.States, r.Events, r.Depth, r.Complete, r.Elapsed)
			if r.Bad != nil {
				t.Error(r.Bad)
			}
		})
	}
}
