package items_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/fault"
	"github.com/etcdclaims/claims/internal/explore/items"
	"github.com/etcdclaims/claims/internal/explore/search"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// condition names a condition of a step by what it is on: all those with this name are dropped together.
type condition struct{ step, on string }

func conditionOf(step string, c *pb.Compare) condition {
	if isGuard(step) {
		step = "guard"
	}
	on := string(c.Key)
	for _, kind := range strings.Fields("/own/ /epoch /ready/ /later/ /taken/ /dead/ /place/ /content/ /worker/ /paused /active/") {
		if strings.Contains(on, kind) {
			on = strings.Trim(kind, "/")
			break
		}
	}
	if len(c.RangeEnd) > 0 {
		on += " range"
	}
	return condition{step, on + " " + strings.ToLower(c.Target.String()+" "+c.Result.String())}
}

// isGuard reports whether a step is that of a session's guard, which carries another one.
func isGuard(step string) bool { return strings.HasPrefix(step, "guard of ") }

// conditions are those that occur in the first states of all scopes.
func conditions() []condition {
	var mu sync.Mutex
	all := map[condition]bool{}
	for _, scope := range items.Scopes() {
		scope.Change = func(step string, in *pb.TxnRequest) *pb.TxnRequest {
			mu.Lock()
			defer mu.Unlock()
			outer := in
			fault.Transactions(in, func(one *pb.TxnRequest) {
				if isGuard(step) && one != outer {
					return // it has those of the step
				}
				for _, c := range one.Compare {
					all[conditionOf(step, c)] = true
				}
			})
			return in
		}
		search.Run([]items.State{items.Start(scope)}, search.Options{Most: 5_000})
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b condition) int {
		return cmp.Or(strings.Compare(a.step, b.step), strings.Compare(a.on, b.on))
	})
}

// Each condition of each step is needed: without it, something is found. unneeded says why it is not of others.
func TestDroppedConditions(t *testing.T) {
	if !*long {
		t.Skip("each condition is dropped in all scopes: run with -long")
	}
	for _, dropped := range conditions() {
		t.Run(dropped.step+" without "+dropped.on, func(t *testing.T) {
			states := 0
			for _, scope := range items.Scopes() {
				scope.Change = func(step string, in *pb.TxnRequest) *pb.TxnRequest {
					if isGuard(step) {
						return &pb.TxnRequest{Compare: slices.DeleteFunc(slices.Clone(in.Compare), func(c *pb.Compare) bool {
							return conditionOf(step, c) == dropped
						}), Success: in.Success, Failure: in.Failure}
					}
					return fault.Without(in, func(c *pb.Compare) bool { return conditionOf(step, c) == dropped })
				}
				r := search.Run([]items.State{items.Start(scope)}, search.Options{Most: 10_000})
				if states += r.States; r.Bad != nil {
					t.Logf("found in scope %s after %d states: %v", scope.Name, states, r.Bad.Err)
					return
				}
			}
			if why := unneeded[dropped]; why == "" {
				t.Errorf("not found in %d states", states)
			} else {
				t.Logf("not found in %d states: %s", states, why)
			}
		})
	}
}

var unneeded = map[condition]string{
	{"claim", "taken create equal"}: "it is for a second key of an item, which only a restore of some keys makes",
	{"guard", "epoch mod equal"}:    "nobody raises the epoch",
	{"guard", "own lease equal"}:    "no revision occurs twice",
	{"guard", "own mod equal"}:      "no two sessions have one lease",
}
