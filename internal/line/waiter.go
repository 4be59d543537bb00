package line

import (
	"math"
	"path"
	"sync"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/term"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// waiter is an attempt that may be handed the key, in the client's list of them.
type waiter struct {
	a       *acquire.Attempt
	place   string // its key in etcd, if it has one
	in      *Waiters
	since   int64                 // no notice to it is older
	notices chan *mvccpb.KeyValue // the last one
	ask     chan struct{}         // news may have been missed
	share   chan struct{}         // a claim of its own client may be shared
	awaited protocol.Wait         // guarded by the mutex of Waiters
	local   term.Queue            // of the term that ended for its sake, until it has its own; under the local line's mutex

	shortcut Shortcut // for its own goroutine
}

// everyRenewal is the revision of a key that a waiter reads at each renewal, because no
// comparison shows whether it has changed.
const everyRenewal = -1

// Waiters are the attempts of a client that wait for a notice. The zero value has none. Its methods are safe for
// concurrent use.
type Waiters struct {
	mu      sync.Mutex         // no other is taken while it is held
	byID    map[string]*waiter // by attempt
	sharing int                // how many of them have Reentrant
}

func (ws *Waiters) add(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.byID == nil {
		ws.byID = make(map[string]*waiter)
	}
	ws.byID[w.a.ID] = w
	if w.a.Call.Reentrant {
		ws.sharing++
	}
}

func (ws *Waiters) remove(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.byID, w.a.ID)
	if w.a.Call.Reentrant {
		ws.sharing--
	}
}

// reentrant lists the waiters that may share a claim of their own client.
func (ws *Waiters) reentrant() (all []*waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.sharing == 0 {
		return nil
	}
	for _, w := range ws.byID {
		if w.a.Call.Reentrant {
			all = append(all, w)
		}
	}
	return all
}

// Share wakes the waiters that may share the claim of their own client on a key by
// now. Those that come too late stay in line, and send nothing.
func (ws *Waiters) Share(may func(key string) bool) {
	for _, w := range ws.reentrant() {
		if may(w.a.User) {
			select {
			case w.share <- struct{}{}:
			default:
			}
		}
	}
}

// get returns the waiter of an attempt, or nil.
func (ws *Waiters) get(id string) *waiter {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.byID[id]
}

// placed returns the keys of their places in line.
func (ws *Waiters) placed() map[string]bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	keys := make(map[string]bool, len(ws.byID))
	for _, w := range ws.byID {
		keys[w.place] = true
	}
	return keys
}

// Count returns how many there are.
func (ws *Waiters) Count() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.byID)
}

// QueueOf returns where those wait who follow the waiter of a claim, if it is one of the session; else nil.
func (ws *Waiters) QueueOf(claim string, s *lease.Session) *term.Queue {
	if w := ws.get(claim); w != nil && w.a.S == s {
		return &w.local
	}
	return nil
}

// await notes what the waiter waits for until the returned function is called.
func (ws *Waiters) await(w *waiter, what protocol.Wait) (end func()) {
	set := func(a protocol.Wait) {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		w.awaited = a
	}
	set(what)
	return func() { set(protocol.Wait{}) }
}

// Of lists the waiters of a session that have a place in line and wait for a key to change.
func (ws *Waiters) Of(s *lease.Session) (all []term.Wait) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byID {
		switch {
		case w.a.S != s:
		case w.awaited.Rev == everyRenewal:
			w.doubt()
		case w.awaited.Rev > 0:
			all = append(all, term.Wait{Wait: w.awaited, Waiter: w})
		}
	}
	return all
}

// Changed makes the waiter read its position: the key that it waits for has changed in
// etcd. It has read that since if it waits for another by now.
func (w *waiter) Changed(what protocol.Wait) {
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	if w.awaited == what {
		w.doubt()
	}
}

// DoubtAll makes all waiters without a pending notice read their positions: their
// places may be gone, or come back.
func (ws *Waiters) DoubtAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byID {
		if len(w.notices) == 0 {
			w.doubt()
		}
	}
}

// NoticesSince returns the revision from which on there may be notices for waiters of
// the session. False means that no caller waits.
func (ws *Waiters) NoticesSince(s *lease.Session) (rev int64, ok bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	rev = math.MaxInt64
	for _, w := range ws.byID {
		if w.a.S == s {
			rev, ok = min(rev, w.since), true
		}
	}
	return rev, ok
}

// Deliver gives a notice to its waiter, if there still is one. It replaces an earlier
// notice that was not read.
func (ws *Waiters) Deliver(kv *mvccpb.KeyValue) {
	w := ws.get(path.Base(string(kv.Key)))
	if w == nil {
		return
	}
	w.forgetNotice()
	select {
	case w.notices <- kv:
	default: // delivered by another at this moment: it is the same
	}
}

// Withdrawn deals with a notice that was removed.
func (ws *Waiters) Withdrawn(id string) {
	if w := ws.get(id); w != nil {
		w.forgetNotice()
		w.doubt()
	}
}

// doubt makes the waiter read its position.
func (w *waiter) doubt() {
	select {
	case w.ask <- struct{}{}:
	default:
	}
}

func (w *waiter) forgetNotice() {
	select {
	case <-w.notices:
	default:
	}
}
