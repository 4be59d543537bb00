package outage

import (
	"maps"
	"slices"
	"sync"
)

// calls are the calls of a client that may have to wait for etcd, by the keys that they are
// for, or by what they are for if that is no key. The report of an outage names them. No other
// mutex is taken while its own is held.
type calls struct {
	mu  sync.Mutex
	all map[string]int // how many calls, by key
}

// await lists a call until done is called.
func (cs *calls) await(key string) (done func()) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.all == nil {
		cs.all = make(map[string]int)
	}
	cs.all[key]++
	return func() { cs.leave(key) }
}

func (cs *calls) leave(key string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.all[key]--; cs.all[key] <= 0 {
		delete(cs.all, key)
	}
}

// waiting returns how many calls there are, and at most most of their keys, in order.
func (cs *calls) waiting(most int) (n int, keys []string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, of := range cs.all {
		n += of
	}
	keys = slices.Sorted(maps.Keys(cs.all))
	return n, keys[:min(most, len(keys))]
}
