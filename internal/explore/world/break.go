package world

import (
	"cmp"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/explore/search"
)

// Compare orders conditions by their steps.
func (c Condition) Compare(other Condition) int {
	return cmp.Or(strings.Compare(c.Step, other.Step), strings.Compare(c.On, other.On))
}

// Conditions is how many there are in all scopes.
const Conditions = 138

// Taken returns all conditions of the steps of some scopes, with the scopes that take them.
func Taken(only func(*Scope) bool) map[Condition][]Scope {
	taken := map[Condition][]Scope{}
	for _, s := range Scopes() {
		if !only(&s) {
			continue
		}
		searched := s
		searched.saw = &steps{all: make(map[Condition]bool)}
		search.Run([]World{New(&searched)}, search.Options{Most: 2_500})
		for c := range searched.saw.all {
			taken[c] = append(taken[c], s)
		}
	}
	return taken
}

// Needs searches scopes for one that shows that a condition is needed: first the one that is known to, then up to a few
// states of each, since most conditions are missed at once. Without such a scope the result is nil.
func Needs(scopes []Scope, c Condition, most int) (name string, found *search.Result) {
	for _, s := range Scopes() {
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
