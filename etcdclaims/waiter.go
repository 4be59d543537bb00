package etcdclaims

import (
	"math"
	"sync"

	"github.com/etcdclaims/claims/internal/protocol"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// waiter is an attempt that may be handed the key, in the client's list of them.
type waiter struct {
	a       *attempt
	since   int64                 // no notice to it is older
	notices chan *mvccpb.KeyValue // the last one
	ask     chan struct{}         // news may have been missed
	share   chan struct{}         // a claim of its own client may be shared
	awaited protocol.Wait         // guarded by the mutex of waiters
	local   localQueue            // of the term that ended for its sake, until it has its own

	shortcut shortcut // for its own goroutine
}

// everyRenewal is the revision of a key that a waiter reads at each renewal, because no
// comparison shows whether it has changed.
const everyRenewal = -1

// wait is a waiter and what it waited for when it was listed.
type wait struct {
	w *waiter
	protocol.Wait
}

// waiters are the attempts of a client that wait for a notice. No other mutex is taken
// while its own is held.
type waiters struct {
	mu      sync.Mutex
	byID    map[string]*waiter // by attempt
	sharing int                // how many of them have Reentrant
}

// add lists a waiter, until Client.removeWaiter.
func (ws *waiters) add(a *attempt) *waiter {
	w := &waiter{
		a: a, since: a.s.c.store.Seen(), notices: make(chan *mvccpb.KeyValue, 1),
		ask: make(chan struct{}, 1), share: make(chan struct{}, 1), shortcut: a.shortcut(),
		local: localQueue{Closed: a.opts.prefers},
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.byID[a.ID] = w
	if a.opts.reentrant {
		ws.sharing++
	}
	return w
}

func (ws *waiters) remove(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.byID, w.a.ID)
	if w.a.opts.reentrant {
		ws.sharing--
	}
}

// reentrant lists the waiters that may share a claim of their own client.
func (ws *waiters) reentrant() (all []*waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.sharing == 0 {
		return nil
	}
	for _, w := range ws.byID {
		if w.a.opts.reentrant {
			all = append(all, w)
		}
	}
	return all
}

// wakeSharing wakes the waiters that may share the claim of their own client on a key by
// now. Those that come too late stay in line, and send nothing.
func (c *Client) wakeSharing(may func(key string) bool) {
	for _, w := range c.waiters.reentrant() {
		if may(w.a.user) {
			select {
			case w.share <- struct{}{}:
			default:
			}
		}
	}
}

// removeWaiter removes a waiter from the list. Who waits behind it in this client
// joins the line in etcd.
func (c *Client) removeWaiter(w *waiter) {
	c.waiters.remove(w)
	c.local.Close(&w.local)
}

// get returns the waiter of an attempt, or nil.
func (ws *waiters) get(id string) *waiter {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.byID[id]
}

func (ws *waiters) count() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.byID)
}

// await notes what the waiter waits for until the returned function is called.
func (ws *waiters) await(w *waiter, what protocol.Wait) (end func()) {
	set := func(a protocol.Wait) {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		w.awaited = a
	}
	set(what)
	return func() { set(protocol.Wait{}) }
}

// of lists the waiters of a session that have a place in line and wait for a key to change.
func (ws *waiters) of(s *session) (all []wait) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byID {
		switch {
		case w.a.s != s:
		case w.awaited.Rev == everyRenewal:
			w.doubt()
		case w.awaited.Rev > 0:
			all = append(all, wait{w, w.awaited})
		}
	}
	return all
}

// changed makes the waiter read its position: the key that it waits for has changed in
// etcd. It has read that since if it waits for another by now.
func (ws *waiters) changed(x wait) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if x.w.awaited == x.Wait {
		x.w.doubt()
	}
}

// doubtAll makes all waiters without a pending notice read their positions: their
// places may be gone, or come back.
func (ws *waiters) doubtAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byID {
		if len(w.notices) == 0 {
			w.doubt()
		}
	}
}

// noticesSince returns the revision from which on there may be notices for waiters of
// the session. False means that no caller waits.
func (ws *waiters) noticesSince(s *session) (rev int64, ok bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	rev = math.MaxInt64
	for _, w := range ws.byID {
		if w.a.s == s {
			rev, ok = min(rev, w.since), true
		}
	}
	return rev, ok
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
