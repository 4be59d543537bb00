package etcdclaims

import (
	"context"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/ownwait"
)

// registry is the set of keys that a client holds, and of claims that are neither
// held nor given up yet. Its mutex is the last in the client's lock order: no other
// is taken while it is held.
type registry struct {
	mu       sync.Mutex
	terms    map[string]*term // by key
	records  map[string]recordOf
	waitedOn map[string]bool              // keys that the client had to wait for
	underWay map[string]int               // by claim id: attempts, and terms that a cleanup gives up
	takings  map[string]map[string]taking // of those, by claim id and key
}

// mostRecords is how many records are remembered of keys that the client no longer shares.
// Others may share them still, and then the next request need not be refused.
const mostRecords = 1024

// recordOf is the record of a key that the client shares, or has shared.
type recordOf struct {
	rev   int64 // of the newest
	epoch int64 // under which that was put
	terms int   // how many of them share the key
}

func newRegistry() registry {
	return registry{
		terms: make(map[string]*term), records: make(map[string]recordOf),
		underWay: make(map[string]int), takings: make(map[string]map[string]taking),
	}
}

// recordRev returns the revision of the record, put under the epoch, of a key that the
// client shares or has shared, or 0. There may be another one by now.
func (r *registry) recordRev(key string, epoch int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := r.records[key]; of.epoch == epoch {
		return of.rev
	}
	return 0
}

// recordBy returns how many claims of the client belong to the record of a key.
func (r *registry) recordBy(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records[key].terms
}

// count counts the terms that belong to a record with a fence for all; r.mu is held.
func (r *registry) count(t *term, by int) {
	record := t.Mode.Guard(t.Fence)
	if !record.Unchanged {
		return
	}
	key, epoch := t.Mode.Keys().User, keyspace.Epoch(t.Fence)
	now := r.records[key]
	if now.terms += by; now.terms == 0 && (now.rev == 0 || len(r.records) > mostRecords) {
		delete(r.records, key)
		return
	}
	if by > 0 && (record.Rev > now.rev || epoch > now.epoch) {
		now.rev, now.epoch = record.Rev, epoch
	}
	r.records[key] = now
}

// forgetRecord forgets a record that is gone, or soon will be.
func (r *registry) forgetRecord(key string, rev int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.records[key]; now.rev == rev {
		now.rev = 0
		r.records[key] = now
		if now.terms == 0 {
			delete(r.records, key)
		}
	}
}

// add registers a term as the holder of its key, unless open has ended: then Close
// has given up, or is about to give up, what it finds here.
func (r *registry) add(t *term, open context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if open.Err() != nil {
		return false
	}
	if younger := r.terms[t.Key]; younger == nil || younger.Fence < t.Fence {
		r.terms[t.Key] = t
		r.count(t, 1)
	}
	return true
}

// remove removes a term that has ended, unless its key has a newer one.
func (r *registry) remove(t *term) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.terms[t.Key] == t {
		delete(r.terms, t.Key)
		r.count(t, -1)
	}
}

// term returns the term that holds the key, or nil.
func (r *registry) term(key string) *term {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terms[key]
}

// all returns the terms of all keys.
func (r *registry) all() []*term {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*term, 0, len(r.terms))
	for _, t := range r.terms {
		all = append(all, t)
	}
	return all
}

// made returns the terms of all keys, with the calls that made them.
func (r *registry) made() []ownwait.Claim {
	var all []ownwait.Claim
	for _, t := range r.all() {
		all = append(all, ownwait.Claim{Token: t.Token(), Key: t.Mode.Keys().User, From: t.from})
	}
	return all
}

// some returns how many keys are held, and up to limit of them.
func (r *registry) some(limit int) (held int, keys []string) {
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

// oldest returns how many keys are held, and how long the oldest term is at the time
// now of the client's uptime.
func (r *registry) oldest(now time.Duration) (held int, age time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.terms {
		age = max(age, now-t.heldSince)
	}
	return len(r.terms), age
}

// register notes the claim of an attempt, or of a term that a cleanup gives up: its
// keys are no ghosts.
func (r *registry) register(claim string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underWay[claim]++
}

// unregister ends a registration: the attempt has become a term, has failed or is
// being undone, or the cleanup is done.
func (r *registry) unregister(claim string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.underWay[claim]--; r.underWay[claim] <= 0 {
		delete(r.underWay, claim)
		delete(r.takings, claim)
	}
}

// setTaken notes that a claim on the key was taken away, if the claim is registered: the
// reply that makes it a term may arrive later.
func (r *registry) setTaken(claim, key string, why taking) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, registered := r.underWay[claim]; !registered {
		return
	}
	if r.takings[claim] == nil {
		r.takings[claim] = make(map[string]taking)
	}
	r.takings[claim][key] = why
}

// taken returns why a registered claim on the key was taken away, if it was.
func (r *registry) taken(claim, key string) (why taking, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	why, ok = r.takings[claim][key]
	return why, ok
}

// isUnderWay reports whether the claim is registered.
func (r *registry) isUnderWay(claim string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, registered := r.underWay[claim]
	return registered
}

// contended reports whether the client had to wait for the key when it last asked
// for it, or holds it. Then the next caller joins the line at once.
func (r *registry) contended(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waitedOn[key] || r.terms[key] != nil
}

// setContended notes whether the client had to wait for the key.
func (r *registry) setContended(key string, contended bool) {
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

// known returns the claims that are held or under way.
func (r *registry) known() knownClaims {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := knownClaims{
		held:     make(map[string]string, len(r.terms)),
		noticed:  make(map[string]bool),
		underWay: make(map[string]bool, len(r.underWay)),
	}
	for key, t := range r.terms {
		k.held[key] = t.ID
		if t.noticed {
			k.noticed[t.ID] = true
		}
	}
	for id := range r.underWay {
		k.underWay[id] = true
	}
	return k
}
