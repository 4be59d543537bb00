package webui

import (
	"context"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/explain"
)

const (
	// mostChanges is how many keys that have changed hands the board remembers, and how many internal ones.
	mostChanges = 50
	// watchAgain is how long after a watch has ended for good it is tried again.
	watchAgain = 5 * time.Second
)

// board is a copy of all held claims, fed by one watch for as long as the handler is in
// use.
type board struct {
	h *Handler

	mu     sync.RWMutex
	run    int                // counts the watches
	cancel context.CancelFunc // of the watch; nil if there is none
	failed time.Time          // when the watch has ended with err
	err    error
	synced chan struct{}               // closed once all claims are known
	seen   map[string]bool             // keys since the watch began, until it has synced; nil if held was empty then
	held   map[string]*etcdclaims.Info // never changed, so that others may keep them
	began  map[string]time.Time        // when terms of held were seen to begin; those that began before are missing
	times  observed
	keys   []string // of held, sorted
	recent changes
	kinds  map[string]int
}

// changes are the last ones, newest first. Internal keys have a list of their own, so that the others stay listed.
type changes struct{ Keys, Internal []change }

// change is a change of ownership.
type change struct {
	etcdclaims.Event
	At       time.Time // when it arrived
	Previous int64     // fence of the term that this one took the place of; 0 if the key was free
	Times    int       // changes of the key, this one among them, since it is in the list
}

// Claimed reports whether the key has an owner since.
func (c change) Claimed() bool { return c.Kind == etcdclaims.Claimed }

func (b *board) init(h *Handler) {
	b.h = h
	b.reset()
}

func (b *board) reset() {
	b.synced, b.seen, b.held, b.keys, b.recent = make(chan struct{}), nil, make(map[string]*etcdclaims.Info), nil, changes{}
	b.times = observed{}
	b.kinds, b.began = make(map[string]int), make(map[string]time.Time)
}

// renew prepares for another watch. The mutex is held.
func (b *board) renew() {
	b.synced, b.seen = make(chan struct{}), nil
	if len(b.held) > 0 {
		b.seen = make(map[string]bool, len(b.held))
	}
}

// start starts the watch unless there is one, and reports whether there is one then.
// What an earlier watch knew stays until the new one knows all claims.
func (b *board) start() (watching bool, synced <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel == nil && !b.h.claims.Passthrough() && time.Since(b.failed) > watchAgain {
		ctx, cancel := context.WithCancel(b.h.ctx)
		b.run++
		run := b.run
		b.renew()
		if b.h.spawn(func() { b.watch(ctx, run) }) {
			b.cancel = cancel
		} else {
			cancel()
		}
	}
	return b.cancel != nil, b.synced
}

// wake starts the watch unless there is one, and waits until all claims are known, or
// for as long as a request may wait.
func (b *board) wake(ctx context.Context, until time.Time) {
	if watching, synced := b.start(); watching {
		await(ctx, until, synced)
	}
}

// stop ends the watch and forgets the claims, unless the handler is in use again.
func (b *board) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.h.inUse() {
		return
	}
	if b.cancel != nil {
		b.cancel()
		b.cancel = nil
	}
	b.run++
	b.reset()
}

// watch keeps the board up to date until ctx ends.
func (b *board) watch(ctx context.Context, run int) {
	var err error
	var e etcdclaims.Event
	for e, err = range b.h.claims.Watch(ctx, "") {
		if err != nil {
			break
		}
		if !b.apply(e, run) {
			return
		}
		if e.Kind == etcdclaims.Synced || e.Kind == etcdclaims.Resynced {
			b.h.changed("")
		} else {
			b.h.changed(e.Info.Key)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run != run {
		return
	}
	b.cancel()
	b.cancel = nil
	b.failed, b.err = time.Now(), err
	if err == nil && b.h.ctx.Err() == nil {
		b.err = etcdclaims.ErrClosed
	}
	b.finishSync()
}

// finishSync lets requests continue. The mutex is held.
func (b *board) finishSync() {
	select {
	case <-b.synced:
	default:
		close(b.synced)
	}
}

// apply takes over an event. It returns false if the watch is outlived.
func (b *board) apply(e etcdclaims.Event, run int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run != run {
		return false
	}
	b.err = nil
	key := e.Info.Key
	previous, now := b.of(key).Fence, time.Now()
	switch e.Kind {
	case etcdclaims.Synced:
		b.dropUnseen()
		b.finishSync()
		b.times.since = now
		return true
	case etcdclaims.Resynced:
		b.times.since = now
		return true
	case etcdclaims.Claimed:
		if b.seen != nil {
			b.seen[key] = true
		}
		b.forget(key)
		if _, there := b.held[key]; !there {
			i, _ := slices.BinarySearch(b.keys, key)
			b.keys = slices.Insert(b.keys, i, key)
		}
		b.held[key] = &e.Info
		b.kinds[kindOf(e.Info)]++
		b.begin(e.Info, previous, now)
	case etcdclaims.Freed:
		if previous != 0 && b.isSynced() {
			b.times.end(key, previous, now)
		}
		b.forget(key)
		if i, ok := slices.BinarySearch(b.keys, key); ok {
			b.keys = slices.Delete(b.keys, i, i+1)
		}
		delete(b.held, key)
		delete(b.began, key)
	}
	select {
	case <-b.synced:
		b.recent.add(change{e, now, previous, 1})
	default: // held when the watch began
	}
	return true
}

// add puts a change before the others, in the place of an earlier one of its key: a key that
// changes all the time hides no other.
func (cs *changes) add(c change) {
	of := &cs.Keys
	if explain.FeatureOf(c.Info.Key) != "" {
		of = &cs.Internal
	}
	all := *of
	if i := slices.IndexFunc(all, func(r change) bool { return r.Info.Key == c.Info.Key }); i >= 0 {
		c.Times += all[i].Times
		all = slices.Delete(all, i, i+1)
	}
	all = slices.Insert(all, 0, c)
	*of = all[:min(len(all), mostChanges)]
}

// dropUnseen drops what an earlier watch knew and the present one does not. The mutex is
// held.
func (b *board) dropUnseen() {
	if b.seen == nil {
		return
	}
	b.keys = slices.DeleteFunc(b.keys, func(key string) bool {
		if b.seen[key] {
			return false
		}
		b.forget(key)
		delete(b.held, key)
		delete(b.began, key)
		return true
	})
	b.seen = nil
}

// begin notes when a term was seen to begin, unless it began before the watch did. The
// mutex is held.
func (b *board) begin(i etcdclaims.Info, previous int64, now time.Time) {
	select {
	case <-b.synced:
		if i.Fence != previous {
			b.began[i.Key] = now
			b.times.begin(i.Key, i.Fence, now)
			if previous != 0 {
				b.times.end(i.Key, previous, now)
			}
		}
	default:
		if i.Fence != previous { // between two watches
			delete(b.began, i.Key)
		}
	}
}

// begun returns when the term of a key with a fence was seen to begin. Zero means that it
// began while no tab was open.
func (b *board) begun(key string, fence int64) time.Time {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.of(key).Fence != fence {
		return time.Time{}
	}
	return b.began[key]
}

// lifetimes returns when terms of a key were seen to begin and to end, and since when each is seen.
func (b *board) lifetimes(key string, terms []admin.Term) (seen []lifetime, since time.Time) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, t := range terms {
		seen = append(seen, b.times.times[termID{key, t.Fence}])
	}
	return seen, b.times.since
}

// forget takes the present holder of a key out of the counts. The mutex is held.
func (b *board) forget(key string) {
	if i, ok := b.held[key]; ok {
		b.kinds[kindOf(*i)]--
	}
}

// unleased is the kind of a key without a lease, which does not expire.
const unleased = "unleased"

func kindOf(i etcdclaims.Info) string {
	if i.Lease == 0 && !explain.IsRecord(i.Kind) {
		return unleased
	}
	return i.Kind
}

// summary is what the board knows of all claims.
type summary struct {
	Held, Zombies, Unleased int
	Recent                  changes
	Err                     error
	Reading                 bool // not all claims are known yet
}

func (b *board) summary() summary {
	b.mu.RLock()
	defer b.mu.RUnlock()
	claims := len(b.held) - b.kinds[explain.KindSlots] - b.kinds[explain.KindShared]
	return summary{
		Held: claims, Zombies: b.kinds["zombie"], Unleased: b.kinds[unleased], Err: b.err, Reading: !b.isSynced(),
		Recent: changes{slices.Clone(b.recent.Keys), slices.Clone(b.recent.Internal)},
	}
}

// isSynced reports whether all claims are known. The mutex is held.
func (b *board) isSynced() bool {
	select {
	case <-b.synced:
		return true
	default:
		return b.h.claims.Passthrough()
	}
}

// selection is which claims a list has. Empty fields exclude none.
type selection struct {
	Prefix   string // of the key
	Kind     string
	Text     string // that the key or the owner contains
	Owner    string
	Internal bool // also those of schedules, queues and groups
}

func (s selection) has(i etcdclaims.Info) bool {
	return (s.Kind == "" || kindOf(i) == s.Kind) && (s.Owner == "" || i.Owner == s.Owner) &&
		(s.Text == "" || strings.Contains(i.Key, s.Text) || strings.Contains(i.Owner, s.Text))
}

// selected returns the selected claims in the order of their keys, and how many more would be
// selected if internal ones were.
func (b *board) selected(s selection) (claims []*etcdclaims.Info, internal int) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	keys := b.keysUnder(s.Prefix)
	claims = make([]*etcdclaims.Info, 0, len(keys))
	for _, key := range keys {
		switch i := b.held[key]; {
		case !s.has(*i):
		case !s.Internal && explain.FeatureOf(key) != "":
			internal++
		default:
			claims = append(claims, i)
		}
	}
	return claims, internal
}

// keysUnder returns the held keys with a prefix. The mutex is held.
func (b *board) keysUnder(prefix string) []string {
	lo, _ := slices.BinarySearch(b.keys, prefix)
	keys := b.keys[lo:]
	return keys[:sort.Search(len(keys), func(i int) bool { return !strings.HasPrefix(keys[i], prefix) })]
}

// allKeys returns the keys of all held claims.
func (b *board) allKeys() []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Clone(b.keys)
}

// holder returns the claim on a key.
func (b *board) holder(key string) (etcdclaims.Info, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.of(key), b.held[key] != nil
}

// of is holder with the mutex held.
func (b *board) of(key string) (i etcdclaims.Info) {
	if held := b.held[key]; held != nil {
		i = *held
	}
	return i
}
