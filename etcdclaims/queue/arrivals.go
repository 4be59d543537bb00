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

// arrivals is what a claimer that waits knows of the visible items without reading them: the
// first ones of its last read, and what the watch has reported since. An item that is enqueued
// while claimers wait is claimed from the event itself, without a read.
type arrivals struct {
	q *store

	mu      sync.Mutex
	turns   turns
	watched bool // else nothing that is read is kept
	ready   floor
	later   floor
	since   int64              // the last read has all up to this revision, from the floors on
	log     []*clientv3.Event  // since a read began; nil: it may not be all
	edge    string             // all items up to this place in the order are known; "": none
	most    int                // items that are kept
	items   map[string]arrival // by key
	size    int                // bytes of items
	paused  bool
	used    map[int]bool      // slots, in queues with MaxTaken
	freed   map[int]time.Time // when this process may take slots that became free
	slotBy  time.Time         // the same of the last of them
	lookBy  time.Time         // when to read again at the latest
}

// arrival is a visible item, and when this process may claim it.
type arrival struct {
	*item.Entry
	due time.Time
}

const (
	// With more items than these, or than four for each process that waits, there is a
	// backlog: claimers read its head, and pick at random. They read readAhead more than
	// they need, so that a worker claims most items without a read.
	fewArrivals      = 64
	readAhead        = 64
	mostArrivalBytes = 4 << 20
	mostLogged       = 1024   // events while a read is under way
	noEdge           = "\xff" // behind all items

	vestGrace  = time.Second // how long claimers leave items that vest to the keeper
	blindTrust = time.Second // how long what is known counts without a watch
)

func (a *arrivals) init(q *store) {
	a.q, a.items, a.used, a.turns.others = q, map[string]arrival{}, map[int]bool{}, map[string]uint64{}
	a.freed = map[int]time.Time{}
	a.ready.prefix, a.later.prefix = q.keys.Ready(), q.keys.Later()
}

// join notes under which session this process waits.
func (a *arrivals) join(session string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turns.self = hash(session)
}

// follow begins anew with the processes that wait as the watch begins.
func (a *arrivals) follow(sessions []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.turns.others)
	for _, id := range sessions {
		a.turns.note(id, true)
	}
	a.drop()
	a.watched, a.log = true, nil
	a.ready.reset(true)
	a.later.reset(true)
}

// forget makes the claimer read before it claims. ended means that nothing is reported any more.
func (a *arrivals) forget(ended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watched = a.watched && !ended
	a.drop()
	a.ready.reset(a.watched)
	a.later.reset(a.watched)
}

func (a *arrivals) drop() {
	a.edge, a.size = "", 0
	clear(a.items)
}

// begin notes that a read may lack what is reported from now on. It returns from where on to read,
// at the start if whole is set.
func (a *arrivals) begin(whole bool) floors {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log = []*clientv3.Event{}
	now := clock.Mono()
	return floors{ready: a.ready.begin(now, whole), later: a.later.begin(now, whole)}
}

// read takes over what was read, and what was reported since it began.
func (a *arrivals) read(v view) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop()
	a.since, a.paused, a.used, a.slotBy = v.rev, v.paused, maps.Clone(v.used), time.Time{}
	clear(a.freed)
	now := clock.Mono()
	trust := a.q.trust()
	share := time.Duration(max(1, len(a.turns.others))) // all that wait do so
	often := func(took time.Duration) time.Duration { return rest(took*share, trust, mostHidden) }
	a.ready.end(v.firstReady, now, often)
	a.later.end(v.firstLater, now, often)
	a.lookBy = now.Add(trust)
	if !a.watched {
		a.lookBy = now.Add(min(a.q.cfg.TTL/3, blindTrust/2+rand.N(blindTrust/2)))
	}
	if until := v.pause.Until; !until.IsZero() { // the first in turn ends it, and that wakes the others
		a.lookBy = earlier(a.lookBy, a.turns.of(a.q.keys.Paused(), now.Add(until.Sub(a.q.now()))))
	}
	if !v.next.IsZero() {
		a.vestsIn(v.next.Sub(a.q.now()), now)
	}
	if len(v.vested) > 0 {
		a.vestsIn(0, now)
	}
	few := max(fewArrivals, 4*len(a.turns.others))
	switch {
	case !a.watched:
	case a.log == nil:
		a.lookBy = now
	case v.all && len(v.ready) <= few:
		a.edge, a.most = noEdge, few
	case len(v.vested) == 0 && len(v.ready) > 0:
		a.edge, a.most = v.ready[len(v.ready)-1].At, 2*len(v.ready)
	}
	for _, p := range v.ready {
		a.put(p, now)
	}
	for _, ev := range a.log {
		a.apply(ev, string(ev.Kv.Key), now)
	}
	a.log = nil
}

// vestsIn notes how long it is until an item vests, in case that the keeper does not move it.
func (a *arrivals) vestsIn(d time.Duration, now time.Time) {
	a.lookBy = earlier(a.lookBy, now.Add(d+vestGrace+rand.N(vestGrace)))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// put notes a visible item, if all up to it are known. It drops all if they are too many.
func (a *arrivals) put(p *item.Entry, now time.Time) {
	if p.At > a.edge {
		return
	}
	due := now
	if a.edge == noEdge || a.q.cfg.MaxTaken > 0 { // one process claims it
		due = a.turns.of(p.Key(), now)
	}
	a.remove(p.Key())
	a.items[p.Key()] = arrival{p, due}
	if a.size += len(p.KV.Value); len(a.items) > a.most || a.size > mostArrivalBytes {
		a.drop()
	}
}

func (a *arrivals) remove(key string) {
	if it, ok := a.items[key]; ok {
		a.size -= len(it.KV.Value)
		delete(a.items, key)
	}
}

// see takes in what the watch reports.
func (a *arrivals) see(events []*clientv3.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := clock.Mono()
	if a.log != nil {
		a.log = append(a.log, events...)
	}
	if len(a.log) > mostLogged {
		a.log = nil
	}
	for _, ev := range events {
		key, put := string(ev.Kv.Key), ev.Type == mvccpb.Event_PUT
		a.ready.see(key, put)
		a.later.see(key, put)
		a.apply(ev, key, now)
	}
}

// apply takes in a change, unless the last read has shown what came of it.
func (a *arrivals) apply(ev *clientv3.Event, key string, now time.Time) {
	k, kv, put := a.q.keys, ev.Kv, ev.Type == mvccpb.Event_PUT
	switch {
	case strings.HasPrefix(key, k.Idles()):
		a.turns.note(strings.TrimPrefix(key, k.Idles()), put)
	case kv.ModRevision <= a.since && !a.ready.unseen(key) && !a.later.unseen(key):
	case strings.HasPrefix(key, k.Slots()) && put:
		a.used[k.SlotOf(key)] = true
	case strings.HasPrefix(key, k.Slots()): // all have waited for it
		delete(a.used, k.SlotOf(key))
		a.slotBy = a.turns.of(fmt.Sprint(key, kv.ModRevision), now)
		a.freed[k.SlotOf(key)] = a.slotBy
	case strings.HasPrefix(key, k.Later()):
		if at, err := item.VestingOf(strings.TrimPrefix(key, k.Later())); put && err == nil {
			a.vestsIn(at.Sub(a.q.now()), now)
		}
	case key == k.Bell():
		a.paused = false
		a.drop()
		a.lookBy = a.turns.of(key, now)
	case !strings.HasPrefix(key, k.Ready()):
	case !put:
		a.remove(key)
	case a.edge != "": // else the claimer reads anyhow
		p, err := k.Entry(kv)
		if err != nil {
			a.q.skip(err)
			return
		}
		if a.put(p, now); a.edge == "" {
			a.lookBy = now // they are a backlog by now
		}
	}
}

// settle drops items that this process has tried to claim, notes the slots of those that it got,
// and how long that took. One that was refused may be there still, if the queue has slots: the
// watch reports what became of it.
func (a *arrivals) settle(tried []*item.Entry, got []*Delivery, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turns.took(took)
	for _, p := range tried {
		it, ok := a.items[p.Key()]
		switch {
		case !ok || it.KV.ModRevision != p.KV.ModRevision:
		case a.q.cfg.MaxTaken > 0 && len(got) < len(tried):
			a.items[p.Key()] = arrival{it.Entry, clock.Mono().Add(a.turns.step())}
		default:
			a.remove(p.Key())
		}
	}
	for _, l := range got {
		if slot := l.state().Slot; slot > 0 {
			a.used[slot] = true
		}
	}
}

// first returns the known items in the order of the queue. If the queue has slots these are as
// many as there are free ones, each with another slot: all processes pair them in the same way.
func (a *arrivals) first() []arrival {
	items := slices.SortedFunc(maps.Values(a.items), func(a, b arrival) int { return item.ByOrder(a.Entry, b.Entry) })
	if a.q.cfg.MaxTaken > 0 {
		free := a.q.freeSlots(a.used)
		items = items[:min(len(items), len(free))]
		for i := range items {
			items[i].State.Slot = free[i]
			if by := a.freed[free[i]]; by.After(items[i].due) {
				items[i].due = by
			}
		}
	}
	return items
}

// claimable returns the items that this process may claim now, in the order of the queue, each
// with a slot if the queue has them. known is false if the claimer has to read instead, also if
// of a backlog fewer than n are known, unless others are to act on a free slot first. If there are none,
// next is later than now.
func (a *arrivals) claimable(n int, now time.Time) (items []*item.Entry, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if most := a.q.cfg.MaxTaken; most > 0 {
		n = min(n, most-len(a.used))
	}
	switch {
	case !now.Before(a.lookBy):
		return nil, false
	case a.paused, n <= 0:
		return nil, true
	case a.edge != noEdge && (a.edge == "" || len(a.items) < n) && !now.Before(a.slotBy):
		return nil, false
	}
	for _, it := range a.first() {
		if !now.Before(it.due) {
			p := *it.Entry
			items = append(items, &p)
		}
	}
	return items, true
}

// next returns when the claimer has something to do again if nothing happens before.
func (a *arrivals) next() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, next := clock.Mono(), a.lookBy
	if !a.paused {
		for _, it := range a.first() {
			if it.due.Before(next) {
				next = it.due
			}
		}
		if a.edge != noEdge && now.Before(a.slotBy) && a.slotBy.Before(next) {
			next = a.slotBy
		}
	}
	return next
}
