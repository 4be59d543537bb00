package world

import "github.com/etcdclaims/claims/internal/explore/search"

// Conditions returns all conditions of the steps that a scope takes.
func Conditions(s Scope, o search.Options) (found []Condition) {
	s.saw = &steps{of: make(map[string]int)}
	search.Run([]World{New(&s)}, o)
	for step, n := range s.saw.of {
		for i := range n {
			found = append(found, Condition{Step: step, N: i})
		}
	}
	return found
}

// Without searches a scope in which the condition is dropped.
func Without(s Scope, c Condition, o search.Options) search.Result {
	s.Drop = &c
	return search.Run([]World{New(&s)}, o)
}
