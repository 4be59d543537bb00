package world

import (
	"sync"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/explore/search"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// steps collects how many conditions the requests of each step have at most.
type steps struct {
	mu sync.Mutex
	of map[string]int
}

func (s *steps) saw(step string, in *pb.TxnRequest) {
	n := 0
	etcdmodel.Transactions(in, func(one *pb.TxnRequest) { n += len(one.Compare) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[step] = max(s.of[step], n)
}

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
