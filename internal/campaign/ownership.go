package main

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
)

// The part of the claims' layout that is watched; docs/protocol.md has it all.
const (
	ownPrefix  = etcdclaims.DefaultPrefix + "own/"
	waitPrefix = etcdclaims.DefaultPrefix + "wait/"
	livePrefix = etcdclaims.DefaultPrefix + "session/"
)

// A term is one put of own/<key>, and what became of it.
type term struct {
	holder       // without an owner if it is a record and no claim
	fence  int64 // revision of the put: no epoch is ever raised here
	begun  time.Time
	end    int64 // revision at which it was deleted or overwritten, 0 while it is not
	ended  time.Time
	lapsed bool // with its lease

	suspected bool // its client did not answer, and the next in line took the key
}

// holder is what is read of the value of a claim, or of a place in line.
type holder struct {
	Claim, Owner string // Owner is the name of the worker
	Kind         string // empty for a claim
	Suspectable  bool
}

// A place is one worker's place in line for a key. It is kept while the key is
// held that was got by it.
type place struct {
	owner    string
	from, to time.Time // to is zero while it stands
}

// ownership is who owned and who waited for what, by the order of etcd's
// revisions and the time at which the news came here.
type ownership struct {
	mu        sync.Mutex
	revision  int64 // all up to it is known
	terms     map[string][]*term
	places    map[string][]*place // by digest of the key
	standing  map[string]*place   // by etcd's key
	raft      uint64              // the latest term of etcd's own leaders
	elections []time.Time         // when each after the first was heard of
	stalls    stalls              // in which the news came late
}

func newOwnership() *ownership {
	return &ownership{terms: map[string][]*term{}, places: map[string][]*place{}, standing: map[string]*place{}}
}

// hear takes in the events of one watch response, unless another member told of
// them before.
func (h *ownership) hear(now time.Time, raft uint64, events ...*clientv3.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if raft > h.raft { // members that lag behind tell of old ones
		if h.raft > 0 {
			h.elections = append(h.elections, now)
		}
		h.raft = raft
	}
	why := endings(events)
	before := h.revision
	for _, ev := range events {
		if ev.Kv.ModRevision > before {
			h.take(now, ev, why)
			h.revision = ev.Kv.ModRevision
		}
	}
}

// An ending is the revision at which the lease of a session lapsed, or a claim was taken for
// a suspicion.
type ending struct {
	rev   int64
	claim string // empty for a session
}

// endings returns why terms ended, as far as events show it.
func endings(events []*clientv3.Event) map[ending]bool {
	found := map[ending]bool{}
	for _, ev := range events {
		key, deleted := string(ev.Kv.Key), ev.Type == clientv3.EventTypeDelete
		switch {
		case !strings.HasPrefix(key, livePrefix):
		case deleted && strings.Contains(key, "/live/"):
			found[ending{rev: ev.Kv.ModRevision}] = true
		case !deleted && strings.Contains(key, "/evict/"):
			notice := decoded[struct {
				Claim     string
				Suspected bool
			}](ev.Kv.Value)
			found[ending{ev.Kv.ModRevision, notice.Claim}] = notice.Suspected
		}
	}
	return found
}

func (h *ownership) take(now time.Time, ev *clientv3.Event, why map[ending]bool) {
	name, rev, deleted := string(ev.Kv.Key), ev.Kv.ModRevision, ev.Type == clientv3.EventTypeDelete
	if key, ok := strings.CutPrefix(name, ownPrefix); ok {
		if t := h.held(key); t != nil {
			t.end, t.ended = rev, now
			t.lapsed, t.suspected = why[ending{rev: rev}], t.Claim != "" && why[ending{rev, t.Claim}]
		}
		if !deleted {
			h.terms[key] = append(h.terms[key], &term{holder: decoded[holder](ev.Kv.Value), fence: rev, begun: now})
		}
		return
	}
	rest, ok := strings.CutPrefix(name, waitPrefix)
	p := h.standing[name]
	switch {
	case !ok:
	case deleted && p != nil:
		p.to = now
		delete(h.standing, name)
	case !deleted && p == nil: // puts after the first tell the worker that it was handed the key
		of, _, _ := strings.Cut(rest, "/")
		p = &place{owner: decoded[holder](ev.Kv.Value).Owner, from: now}
		h.standing[name], h.places[of] = p, append(h.places[of], p)
	}
}

// decoded returns a value, or the zero value if it cannot be read.
func decoded[T any](value []byte) T {
	var v, none T
	if err := json.Unmarshal(value, &v); err != nil {
		return none
	}
	return v
}

// held returns the term of a key that lasts, or nil.
func (h *ownership) held(key string) *term {
	terms := h.terms[key]
	if len(terms) == 0 || terms[len(terms)-1].end > 0 {
		return nil
	}
	return terms[len(terms)-1]
}

// owned returns the keys that a worker owns now, or those that anybody does for "".
func (h *ownership) owned(worker string) (keys []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range h.terms {
		if t := h.held(key); t != nil && (worker == "" || t.Owner == worker) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys) // so that the same chance picks the same
	return keys
}

// owner returns which worker owns a key now, or "".
func (h *ownership) owner(key string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.held(key); t != nil {
		return t.Owner
	}
	return ""
}

// begunSince reports whether a term of the key has begun after a time.
func (h *ownership) begunSince(since time.Time, key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	terms := h.terms[key]
	return len(terms) > 0 && terms[len(terms)-1].begun.After(since)
}

// seen returns the revision up to which all is known.
func (h *ownership) seen() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.revision
}
