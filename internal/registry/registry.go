// Package registry is the set of keys that a client holds, and of claims that are neither held nor given up yet.
package registry

import (
	"context"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/ownwait"
	"github.com/etcdclaims/claims/internal/protocol"
)

// Registry is the set of keys that a client holds, and of claims that are neither
// held nor given up yet. T is the term of a key, and W is why a claim was taken away. Its mutex is
// the last in the client's lock order: no other is taken while it is held.
type Registry[T comparable, W any] struct {
	mu       sync.Mutex
	terms    map[string]entry[T] // by key
	records  map[string]recordOf
	waitedOn map[string]bool         // keys that the client had to wait for
	underWay map[string]int          // by claim id: attempts, and terms that a cleanup gives up
	takings  map[string]map[string]W // of those, by claim id and key
}

// Holding is what the registry knows of a term. Nothing of it changes.
type Holding struct {
	protocol.Held
	Since   time.Duration // of the client's uptime
	Noticed bool          // it was handed over, by a notice that stays until it ends
	From    ownwait.Site  // the call that made it
}

type entry[T comparable] struct {
	term T
	*Holding
}

// New returns a registry without keys.
func New[T comparable, W any]() Registry[T, W] {
	return Registry[T, W]{
		terms: make(map[string]entry[T]), records: make(map[string]recordOf),
		underWay: make(map[string]int), takings: make(map[string]map[string]W),
	}
}

// Add registers a term as the holder of its key, unless open has ended: then Close
// has given up, or is about to give up, what it finds here.
func (r *Registry[T, W]) Add(t T, h *Holding, open context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if open.Err() != nil {
		return false
	}
	if younger, ok := r.terms[h.Key]; !ok || younger.Fence < h.Fence {
		r.terms[h.Key] = entry[T]{t, h}
		r.count(&h.Held, 1)
	}
	return true
}

// Remove removes a term of the key that has ended, unless the key has a newer one.
func (r *Registry[T, W]) Remove(t T, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.terms[key]; ok && e.term == t {
		delete(r.terms, key)
		r.count(&e.Held, -1)
	}
}

// Term returns the term that holds the key, or the zero T.
func (r *Registry[T, W]) Term(key string) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terms[key].term
}

// All returns the terms of all keys.
func (r *Registry[T, W]) All() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]T, 0, len(r.terms))
	for _, e := range r.terms {
		all = append(all, e.term)
	}
	return all
}

// Made returns the claims on all keys, with the calls that made them.
func (r *Registry[T, W]) Made() []ownwait.Claim {
	all := r.holdings()
	made := make([]ownwait.Claim, len(all)) // without the mutex, for which the renewal of claims can wait
	for i, h := range all {
		made[i] = ownwait.Claim{Token: h.Token(), Key: h.Mode.Keys().User, From: h.From}
	}
	return made
}

func (r *Registry[T, W]) holdings() []*Holding {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Holding, 0, len(r.terms))
	for _, e := range r.terms {
		all = append(all, e.Holding)
	}
	return all
}

// Some returns how many keys are held, and up to limit of them.
func (r *Registry[T, W]) Some(limit int) (held int, keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.terms {
		if len(keys) == limit {
			break
		}
		keys = append(keys, key)
	}
	return len(r.terms), keys
}

// Oldest returns how many keys are held, and how long the oldest term is at the time
// now of the client's uptime.
func (r *Registry[T, W]) Oldest(now time.Duration) (held int, age time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.terms {
		age = max(age, now-e.Since)
	}
	return len(r.terms), age
}

// Register notes the claim of an attempt, or of a term that a cleanup gives up: its
// keys are no ghosts.
func (r *Registry[T, W]) Register(claim string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underWay[claim]++
}

// Unregister ends a registration: the attempt has become a term or has failed, or the
// cleanup is done.
func (r *Registry[T, W]) Unregister(claim string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.underWay[claim]--; r.underWay[claim] <= 0 {
		delete(r.underWay, claim)
		delete(r.takings, claim)
	}
}

// SetTaken notes that a claim on the key was taken away, if the claim is registered: the
// reply that makes it a term may arrive later.
func (r *Registry[T, W]) SetTaken(claim, key string, why W) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, registered := r.underWay[claim]; !registered {
		return
	}
	if r.takings[claim] == nil {
		r.takings[claim] = make(map[string]W)
	}
	r.takings[claim][key] = why
}

// Taken returns why a registered claim on the key was taken away, if it was.
func (r *Registry[T, W]) Taken(claim, key string) (why W, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	why, ok = r.takings[claim][key]
	return why, ok
}

// IsUnderWay reports whether the claim is registered.
func (r *Registry[T, W]) IsUnderWay(claim string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, registered := r.underWay[claim]
	return registered
}

// Contended reports whether the client had to wait for the key when it last asked
// for it, or holds it. Then the next caller joins the line at once.
func (r *Registry[T, W]) Contended(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, held := r.terms[key]
	return r.waitedOn[key] || held
}

// WaitedFor reports whether the client had to wait for the key when it last asked for it.
func (r *Registry[T, W]) WaitedFor(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waitedOn[key]
}

// SetContended notes whether the client had to wait for the key.
func (r *Registry[T, W]) SetContended(key string, contended bool) {
	const most = 1024
	r.mu.Lock()
	defer r.mu.Unlock()
	if !contended {
		delete(r.waitedOn, key)
		return
	}
	if r.waitedOn == nil || len(r.waitedOn) >= most {
		r.waitedOn = make(map[string]bool) // a hint: forgetting it costs a request
	}
	r.waitedOn[key] = true
}
