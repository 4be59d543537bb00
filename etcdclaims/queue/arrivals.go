package queue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/item"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// arrivals is what a claimer that waits knows of the visible items without reading
// them: those of its last read, and what the watch has reported since. An item that is
// enqueued while claimers wait is claimed from the event itself, without a read.
//
// Each waiting process registers below index/idle/. All of them see the same items and
// the same registrations, and each computes from both how many processes come before it
// for an item: its rank (rendezvous hashing). The first one claims at once, the next one
// a step later if the item is still there. So one enqueue causes one claiming request,
// however many processes wait, and a process that is busy, frozen or dead costs one
// step. Nothing depends on it but speed: a claim is safe, whichever process sends it,
// and when.
type arrivals struct {
	mu       sync.Mutex
	watched  bool                // else nothing that is read is kept
	complete bool                // items has all visible items
	edge     string              // else, if not "": all of those up to this place in the order
	most     int                 // items that are kept
	items    map[string]*arrival // by key
	size     int                 // bytes of items
	paused   bool
	used     map[int]bool      // slots, in queues with MaxTaken
	since    int64             // the last read has all up to this revision
	reading  bool              // a read is under way
	log      []*clientv3.Event // since it began
	missed   bool              // log does not have all
	lookBy   time.Time         // when to read again at the latest
	freed    string            // the slot that became free last
	freedAt  time.Time
	slotBy   time.Time // when to read again because of that, or zero

	self   uint64            // hash of this process's session
	others map[string]uint64 // waiting processes by session, with their hashes
	trip   time.Duration     // how long a claiming request takes, smoothed
}

// arrival is a visible item, and when this process may claim it.
type arrival struct {
	*item.Entry
	due  time.Time
	slot string // the slot that became free when due was computed, or ""
}

const (
	// With more items than these, or than four for each process that waits, there is a
	// backlog: claimers read its head, and pick at random. They read readAhead more than
	// they need, so that a worker claims most items without a read.
	fewArrivals      = 64
	readAhead        = 64
	mostArrivalBytes = 4 << 20

	// A step is how long a process waits for one that comes before it. It is twice as
	// long as a claiming request takes, between these.
	minStep = 2 * time.Millisecond
	maxStep = 100 * time.Millisecond
	// mostSteps bounds the steps. A process with more before it waits for at most twice
	// as many, at random.
	mostSteps = 16

	// vestGrace is how long claimers leave items that vest to the keeper.
	vestGrace = time.Second
)

func (a *arrivals) init() {
	a.items, a.used, a.others = map[string]*arrival{}, map[int]bool{}, map[string]uint64{}
}

// join notes under which session this process is registered.
func (a *arrivals) join(session string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.self = hash(session)
}

// follow begins anew with the processes that are registered as the watch begins.
func (a *arrivals) follow(sessions []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.others)
	for _, id := range sessions {
		a.others[id] = hash(id)
	}
	a.forgetItems()
	a.watched, a.missed = true, true
}

// unfollow notes that nothing is reported any more.
func (a *arrivals) unfollow() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watched = false
	a.forgetItems()
}

// forget makes the claimer read before it claims.
func (a *arrivals) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgetItems()
}

func (a *arrivals) forgetItems() {
	a.complete, a.edge, a.most, a.size = false, "", 0, 0
	clear(a.items)
}

// beginRead notes that the read may lack events from now on.
func (a *arrivals) beginRead() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reading, a.missed, a.log = true, false, nil
}

// failRead ends a read that returned nothing.
func (a *arrivals) failRead() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reading, a.log = false, nil
}

// endRead takes over the values that were read, and the events since.
func (a *arrivals) endRead(q *store, v view) {
	a.mu.Lock()
	defer a.mu.Unlock()
	log := a.log
	a.reading, a.log = false, nil
	a.forgetItems()
	kept := a.watched && !a.missed
	a.since, a.complete, a.paused = v.rev, kept && v.all && len(v.ready) <= a.few(), v.paused
	clear(a.used)
	for slot := range v.used {
		a.used[slot] = true
	}
	now := clock.Mono()
	a.lookBy, a.slotBy = now.Add(min(q.cfg.TTL/3, longestTrust)), time.Time{}
	if !a.watched {
		a.lookBy = now.Add(min(q.cfg.TTL/3, blindTrust/2+rand.N(blindTrust/2)))
	}
	if !v.next.IsZero() {
		a.vestsIn(v.next.Sub(q.now()), now)
	}
	if len(v.vested) > 0 {
		a.vestsIn(0, now)
	}
	switch by := a.lookBy; {
	case a.complete:
		a.most = a.few()
		for _, p := range v.ready {
			a.put(p, a.turn(p.Key(), now))
		}
		a.lookBy = by // a backlog, which was just read, is not read again at once
	case kept && q.cfg.MaxTaken == 0 && len(v.vested) == 0 && len(v.ready) > 0:
		a.edge, a.most = v.ready[len(v.ready)-1].At, 2*len(v.ready)
		for _, p := range v.ready {
			a.put(p, now)
		}
		a.lookBy = by
	}
	for _, ev := range log {
		a.apply(q, ev, now)
	}
}

// vestsIn notes how long it is until an item vests, in case that the keeper does not move it.
func (a *arrivals) vestsIn(d time.Duration, now time.Time) {
	if by := now.Add(d + vestGrace + rand.N(vestGrace)); by.Before(a.lookBy) {
		a.lookBy = by
	}
}

// see takes in what the watch reports.
func (a *arrivals) see(q *store, events []*clientv3.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := clock.Mono()
	for _, ev := range events {
		switch {
		case !a.reading:
		case len(a.log) < 2*a.few():
			a.log = append(a.log, ev)
		default:
			a.missed = true
		}
		a.apply(q, ev, now)
	}
}

func (a *arrivals) apply(q *store, ev *clientv3.Event, now time.Time) {
	key, put := string(ev.Kv.Key), ev.Type == mvccpb.Event_PUT
	if id, ok := strings.CutPrefix(key, q.keys.Idles()); ok {
		if put {
			a.others[id] = hash(id)
		} else {
			delete(a.others, id)
		}
		return
	}
	if ev.Kv.ModRevision <= a.since {
		return
	}
	switch {
	case strings.HasPrefix(key, q.keys.Slots()):
		if put {
			a.used[q.keys.SlotOf(key)] = true
			if len(a.used) >= q.cfg.MaxTaken {
				a.slotBy = time.Time{}
			}
			return
		}
		delete(a.used, q.keys.SlotOf(key))
		a.freed, a.freedAt, a.slotBy = fmt.Sprint(key, ev.Kv.ModRevision), now, a.turn(key, now)
	case strings.HasPrefix(key, q.keys.Later()):
		if at, err := item.VestingOf(strings.TrimPrefix(key, q.keys.Later())); put && err == nil {
			a.vestsIn(at.Sub(q.now()), now)
		}
	case key == q.keys.Bell():
		a.paused = false
		a.forgetItems()
		a.lookBy = a.turn(key, now)
	case !strings.HasPrefix(key, q.keys.Ready()):
	case !put:
		a.remove(key)
	case !a.complete && a.edge == "": // then the claimer reads anyhow
	default:
		p, err := q.keys.Entry(ev.Kv)
		switch {
		case err != nil:
			q.skip(err)
		case a.complete:
			a.put(p, a.turn(key, now))
		case p.At <= a.edge:
			a.put(p, now)
		}
	}
}

func (a *arrivals) put(p *item.Entry, due time.Time) {
	key := p.Key()
	a.remove(key)
	a.items[key] = &arrival{p, due, a.freed}
	a.size += len(p.KV.Value)
	if len(a.items) > a.most || a.size > mostArrivalBytes {
		a.forgetItems()
		a.lookBy = clock.Mono()
	}
}

const (
	// longestTrust is how long the known state is used at most if the watch reports
	// nothing.
	longestTrust = 10 * time.Second
	// blindTrust is how long waiting claimers wait for the next read while there is no
	// watch.
	blindTrust = time.Second
)

// few returns with how many items there is no backlog.
func (a *arrivals) few() int { return max(fewArrivals, 4*len(a.others)) }

func (a *arrivals) remove(key string) {
	if it := a.items[key]; it != nil {
		a.size -= len(it.KV.Value)
		delete(a.items, key)
	}
}

// settle drops items that this process has tried to claim, and notes the slots of
// those that it got.
func (a *arrivals) settle(q *store, tried []*item.Entry, got []*Delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range tried {
		if it := a.items[p.Key()]; it != nil && it.KV.ModRevision == p.KV.ModRevision {
			a.remove(p.Key())
		}
	}
	for _, l := range got {
		if slot := l.state().Slot; slot > 0 {
			a.used[slot] = true
		}
	}
}

// claimable returns the items that this process may claim now, in the order of the
// queue, each with a slot if the queue has them. known is false if the claimer has to
// read instead, also if of a backlog fewer than n are known.
func (a *arrivals) claimable(q *store, n int, now time.Time) (items []*item.Entry, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !now.Before(a.lookBy):
		return nil, false
	case a.paused, a.blocked(q, now):
		return nil, true
	case !a.complete && (a.edge == "" || len(a.items) < n):
		return nil, false
	}
	for _, it := range a.eligible(q) {
		if !now.Before(it.due) {
			p := *it.Entry
			items = append(items, &p)
		}
	}
	return items, true
}

// blocked reports whether the queue has slots, and no slot is free for this process.
func (a *arrivals) blocked(q *store, now time.Time) bool {
	return q.cfg.MaxTaken > 0 && (len(a.used) >= q.cfg.MaxTaken || !a.complete && now.Before(a.slotBy))
}

// eligible returns the items that may be claimed when they are due. If the queue has
// slots these are as many as there are free ones, the first ones, each with another
// slot: all processes pair them in the same way. When a slot becomes free they have all
// waited for it, so it is for each item's first process again.
func (a *arrivals) eligible(q *store) []*arrival {
	items := slices.Collect(maps.Values(a.items))
	slices.SortFunc(items, func(a, b *arrival) int { return item.ByOrder(a.Entry, b.Entry) })
	if q.cfg.MaxTaken == 0 {
		return items
	}
	free := q.freeSlots(a.used)
	items = items[:min(len(items), len(free))]
	for i, it := range items {
		it.State.Slot = free[i]
		if it.slot != a.freed {
			it.slot, it.due = a.freed, a.turn(it.Key()+a.freed, a.freedAt)
		}
	}
	return items
}

// next returns when the claimer has something to do again if nothing happens before.
func (a *arrivals) next(q *store) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := a.lookBy
	switch {
	case a.paused:
	case a.complete:
		for _, it := range a.eligible(q) {
			if it.due.Before(next) {
				next = it.due
			}
		}
	case !a.slotBy.IsZero() && a.slotBy.Before(next):
		next = a.slotBy
	}
	return next
}
