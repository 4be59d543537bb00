package world

import (
	"cmp"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/etcdclaims/claims/internal/explore/driver"
	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/protocol"
)

// Compare orders conditions by their steps.
func (c Condition) Compare(other Condition) int {
	return cmp.Or(strings.Compare(c.Step, other.Step), strings.Compare(c.On, other.On))
}

// Conditions is how many there are in all scopes.
const Conditions = 148

// own are the steps with conditions that are not those of an attempt.
var own = []string{
	"Undo", "Drop", "ClearAway", "Move", "Commit", "Bury", "hand-over", "release (leaving)", "release (settling)", "release (deleting)",
}

// Untaken returns the steps with conditions of which none is among those taken.
func Untaken(taken map[Condition][]Scope) []string {
	missing := slices.Concat(own, slices.Collect(maps.Values(driver.StepNames)))
	return slices.DeleteFunc(missing, func(step string) bool {
		if step == driver.StepNames[protocol.Looking] { // it only reads
			return true
		}
		for c := range taken {
			if c.Step == step {
				return true
			}
		}
		return false
	})
}

// late are scopes with requests that are first sent beyond the states that Taken searches of the others.
var late = map[string]int{"slots: 2 wait, other faults": 20_000}

// Taken returns all conditions of the steps of some scopes, with the scopes that take them. One worker searches a scope:
// several would visit other states up to the bound each time.
func Taken(only func(*Scope) bool) map[Condition][]Scope {
	scopes := slices.DeleteFunc(Scopes(), func(s Scope) bool { return !only(&s) })
	seen := make([]steps, len(scopes))
	var at atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := int(at.Add(1)) - 1; i < len(scopes); i = int(at.Add(1)) - 1 {
				searched := scopes[i]
				seen[i] = make(steps)
				searched.saw = seen[i]
				search.Run([]World{New(&searched)}, search.Options{Most: cmp.Or(late[searched.Name], 2_500), Workers: 1})
			}
		})
	}
	all.Wait()
	taken := map[Condition][]Scope{}
	for i, s := range scopes {
		for c := range seen[i] {
			taken[c] = append(taken[c], s)
		}
	}
	return taken
}

// Needs searches scopes for one that shows that a condition is needed: first the one that is known to, then up to a few
// states of each, since most conditions are missed at once. Without such a scope the result is nil.
func Needs(scopes []Scope, c Condition, most int) (name string, found *search.Result) {
	for _, s := range scopes {
		if slices.Contains(shows[s.Name], c) {
			if r := Without(s, c, search.Options{Most: 300_000}); r.Bad != nil {
				return s.Name, &r
			}
		}
	}
	for n := min(100, most); len(scopes) > 0; n = min(5*n, most) {
		var larger []Scope
		for _, s := range scopes {
			r := Without(s, c, search.Options{Most: n})
			switch {
			case r.Bad != nil:
				return s.Name, &r
			case !r.Complete:
				larger = append(larger, s)
			}
		}
		if scopes = larger; n == most {
			break
		}
	}
	return "", nil
}

// Without searches a scope in which the condition is dropped.
func Without(s Scope, c Condition, o search.Options) search.Result {
	s.Drop = &c
	return search.Run([]World{New(&s)}, o)
}
