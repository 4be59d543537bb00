package main

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdclaims/claims/etcdclaims"
)

// The part of the claims' layout that is watched; docs/protocol.md has it all.
const (
	ownPrefix  = etcdclaims.DefaultPrefix + "own/"
	waitPrefix = etcdclaims.DefaultPrefix + "wait/"
	livePrefix = etcdclaims.DefaultPrefix + "session/"
	markKey    = etcdclaims.DefaultPrefix + "campaign" // put last, to see that all before was seen
)

// A term is one put of own/<key>, and what became of it.
type term struct {
	owner  string // name of the worker; empty for a record that is no claim
	claim  string // its id
	kind   string // empty for a claim
	fence  int64  // revision of the put: no epoch is ever raised here
	begun  time.Time
	end    int64 // revision at which it was deleted or overwritten, 0 while it is not
	ended  time.Time
	lapsed bool // with its lease

	suspectable bool // the claim has that option
	suspected   bool // its client did not answer, and the next in line took the key
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
	mu       sync.Mutex
	revision int64 // all up to it is known
	terms    map[string][]*term
	places   map[string][]*place // by digest of the key
	standing map[string]*place   // by etcd's key
	gaps     [][2]int64          // revisions after the first, up to the second, were not seen
	raft     []raftTerm
	stalls   stalls // in which the news came late
}

// A raftTerm is when a term of etcd's own leaders was first heard of.
type raftTerm struct {
	at     time.Time
	number uint64
}

func newOwnership() *ownership {
	return &ownership{terms: map[string][]*term{}, places: map[string][]*place{}, standing: map[string]*place{}}
}

// hear takes in the events of one watch response, unless another member told of
// them before.
func (h *ownership) hear(now time.Time, rev int64, term uint64, events []event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hearTerm(now, term)
	why := reasonsIn(events)
	for _, ev := range events {
		if ev.rev > h.revision {
			h.take(now, ev, why)
		}
	}
	h.revision = max(h.revision, rev)
}

// reasons are why terms ended, as far as events show it.
type reasons struct {
	lapsed    map[int64]bool   // revisions at which a session ended: its lease did
	suspected map[claimed]bool // claims that were taken, and at which revision
}

func reasonsIn(events []event) reasons {
	why := reasons{map[int64]bool{}, map[claimed]bool{}}
	for _, ev := range events {
		if !strings.HasPrefix(ev.key, livePrefix) {
			continue
		}
		switch {
		case ev.deleted && strings.Contains(ev.key, "/live/"):
			why.lapsed[ev.rev] = true
		case !ev.deleted && strings.Contains(ev.key, "/evict/"):
			if n := decoded[notice](ev.value); n.Suspected {
				why.suspected[claimed{n.Claim, ev.rev}] = true
			}
		}
	}
	return why
}

// hearTerm notes a new term of etcd's leaders. Members that lag behind tell of
// old ones.
func (h *ownership) hearTerm(now time.Time, number uint64) {
	if n := len(h.raft); n == 0 || h.raft[n-1].number < number {
		h.raft = append(h.raft, raftTerm{at: now, number: number})
	}
}

// An event is what a watch, or a read in place of one, tells of a key.
type event struct {
	key     string
	value   []byte
	rev     int64
	deleted bool
}

func eventOf(kv *mvccpb.KeyValue, deleted bool) event {
	return event{key: string(kv.Key), value: kv.Value, rev: kv.ModRevision, deleted: deleted}
}

func (h *ownership) take(now time.Time, ev event, why reasons) {
	if key, ok := strings.CutPrefix(ev.key, ownPrefix); ok {
		if last := h.last(key); last != nil && last.end == 0 {
			last.end, last.ended = ev.rev, now
			last.lapsed, last.suspected = why.lapsed[ev.rev], why.suspected[claimed{last.claim, ev.rev}]
		}
		if !ev.deleted {
			v := decoded[holder](ev.value)
			h.terms[key] = append(h.terms[key], &term{owner: v.Owner, claim: v.Claim, kind: v.Kind, suspectable: v.Suspectable, fence: ev.rev, begun: now})
		}
		return
	}
	rest, ok := strings.CutPrefix(ev.key, waitPrefix)
	if !ok {
		return
	}
	p := h.standing[ev.key]
	switch {
	case ev.deleted && p != nil:
		p.to = now
		delete(h.standing, ev.key)
	case !ev.deleted && p == nil: // puts after the first tell the worker that it was handed the key
		of, _, _ := strings.Cut(rest, "/")
		v := decoded[holder](ev.value)
		p = &place{owner: v.Owner, from: now}
		h.standing[ev.key], h.places[of] = p, append(h.places[of], p)
	}
}

// holder is what is read of the value of a claim, or of a place in line.
type holder struct {
	Claim, Owner, Kind string
	Suspectable        bool
}

// claimed names one put of a claim.
type claimed struct {
	claim string
	fence int64
}

// notice is what is read of a notice that a claim was taken.
type notice struct {
	Claim     string
	Suspected bool
}

// decoded returns a value, or the zero value if it cannot be read.
func decoded[T any](value []byte) T {
	var v, none T
	if err := json.Unmarshal(value, &v); err != nil {
		return none
	}
	return v
}

// last returns the youngest term of a key.
func (h *ownership) last(key string) *term {
	terms := h.terms[key]
	if len(terms) == 0 {
		return nil
	}
	return terms[len(terms)-1]
}

// reread takes in what was read at a revision, in place of events that are
// compacted. What began and ended within the gap is not known.
func (h *ownership) reread(now time.Time, rev int64, raft uint64, there []event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if rev <= h.revision {
		return // another member has told of it meanwhile
	}
	h.hearTerm(now, raft)
	h.gaps = append(h.gaps, [2]int64{h.revision, rev})
	found := map[string]bool{}
	for _, ev := range there {
		found[ev.key] = true
	}
	for key := range h.terms {
		if last := h.last(key); last.end == 0 && !found[ownPrefix+key] {
			h.take(now, event{key: ownPrefix + key, rev: rev, deleted: true}, reasons{})
		}
	}
	for key := range h.standing {
		if !found[key] {
			h.take(now, event{key: key, rev: rev, deleted: true}, reasons{})
		}
	}
	for _, ev := range there {
		if ev.rev > h.revision {
			h.take(now, ev, reasons{})
		}
	}
	h.revision = rev
}

// owned returns the keys that a worker owns now, and those among all that are
// owned by anybody.
func (h *ownership) owned(worker string) (its, all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range h.terms {
		if last := h.last(key); last.end == 0 {
			all = append(all, key)
			if last.owner == worker {
				its = append(its, key)
			}
		}
	}
	slices.Sort(all) // so that the same chance picks the same
	return its, all
}

// owner returns which worker owns a key now, or "".
func (h *ownership) owner(key string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := h.last(key); last != nil && last.end == 0 {
		return last.owner
	}
	return ""
}

// begunSince reports whether a term of the key has begun after a time.
func (h *ownership) begunSince(since time.Time, key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.last(key)
	return last != nil && last.begun.After(since)
}

// count returns how many terms there were, and how many of them began after the
// lease of the owner before had lapsed.
func (h *ownership) count() (terms, takeOvers int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.terms {
		terms += len(of)
		for i := 1; i < len(of); i++ {
			if of[i-1].lapsed {
				takeOvers++
			}
		}
	}
	return terms, takeOvers
}

// seen returns the revision up to which all is known.
func (h *ownership) seen() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.revision
}
