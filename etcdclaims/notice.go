package etcdclaims

import (
	"encoding/json"
	"math"
	"path"
	"strings"
	"sync/atomic"

	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/zap"
)

// A releaser tells the waiter that it handed the key to by a notice under the
// prefix that the waiter's client watches anyway, in the very transaction that
// puts the claim: the event is proof of the claim, and its revision the fence.
// The watch runs since the client's first session began, before anybody could be
// in line, so that nothing can be missed; what an interruption keeps back is read
// after it, and what a watch that has gone deaf keeps back is found by the
// verification that follows each renewal.

// notice is the value of session/<instance>/won/<claim>. It stays until the claim
// ends.
type notice struct {
	Version int     `json:"v"`
	Epoch   int64   `json:"epoch,omitempty"`    // under which the fence is
	Rev     int64   `json:"epochRev,omitempty"` // ModRevision of the epoch's key
	Next    []place `json:"next,omitempty"`     // who is first in line behind, as far as the releaser knew
	More    bool    `json:"more,omitempty"`     // others stand behind those
	Trace   string  `json:"trace,omitempty"`    // of the releaser's claim, for the one that follows
}

// place is one in line, with what it takes to hand it the key.
type place struct {
	ID    string `json:"id"`  // of the attempt
	Rev   int64  `json:"rev"` // of its place in line
	Lease int64  `json:"lease"`
	Value string `json:"value"`
}

// waiter is an attempt that may be handed the key, in the client's list of them.
type waiter struct {
	a       *attempt
	since   int64                 // no notice to it is older
	notices chan *mvccpb.KeyValue // the last one
	ask     chan struct{}         // news may have been missed
	evicted atomic.Pointer[error] // what it was handed was forced from it

	awaited awaited // guarded by the client's waitersMu

	// Guarded by the client's localMu:
	localWaiters []*localWaiter // of the term that ended for its sake
	removed      bool           // nobody waits any more
}

// awaited is a key that a waiter waits to change, and the ModRevision with which
// it knows the key: 0 if it does not.
type awaited struct {
	key string
	rev int64
}

// awaiting notes what the waiter waits for until the returned function is called.
func (c *Client) awaiting(w *waiter, what awaited) (end func()) {
	set := func(a awaited) {
		c.waitersMu.Lock()
		defer c.waitersMu.Unlock()
		w.awaited = a
	}
	set(what)
	return func() { set(awaited{}) }
}

// wait is a waiter and what it waited for when it was listed.
type wait struct {
	w *waiter
	awaited
}

// waits lists those who wait on the session, with a place in it, for a key to
// change.
func (s *session) waits() []wait {
	s.c.waitersMu.Lock()
	defer s.c.waitersMu.Unlock()
	var ws []wait
	for _, w := range s.c.waiters {
		if w.a.s == s && w.awaited.rev > 0 {
			ws = append(ws, wait{w, w.awaited})
		}
	}
	return ws
}

// judgeWait makes the waiter ask how it stands if etcd has something else under the
// key that it waits for. It has read that since if it waits for another by now.
func (c *Client) judgeWait(x wait, kvs []*mvccpb.KeyValue) {
	if len(kvs) > 0 && kvs[0].ModRevision == x.rev {
		return
	}
	c.waitersMu.Lock()
	defer c.waitersMu.Unlock()
	if x.w.awaited == x.awaited {
		x.w.doubt()
	}
}

// addWaiter lists a waiter until removeWaiter.
func (c *Client) addWaiter(a *attempt) *waiter {
	w := &waiter{a: a, since: c.store.seen.Load(), notices: make(chan *mvccpb.KeyValue, 1), ask: make(chan struct{}, 1)}
	c.waitersMu.Lock()
	defer c.waitersMu.Unlock()
	c.waiters[a.id] = w
	return w
}

func (c *Client) removeWaiter(w *waiter) {
	c.waitersMu.Lock()
	delete(c.waiters, w.a.id)
	c.waitersMu.Unlock()
	c.localMu.Lock()
	defer c.localMu.Unlock()
	w.removed = true
	c.requeueLocked(w.localWaiters)
	w.localWaiters = nil
}

func (c *Client) waiter(id string) *waiter {
	c.waitersMu.Lock()
	defer c.waitersMu.Unlock()
	return c.waiters[id]
}

// deliver gives a notice to whom it is for, if that still waits. What was
// delivered before is out of date.
func (c *Client) deliver(kv *mvccpb.KeyValue) {
	w := c.waiter(path.Base(string(kv.Key)))
	if w == nil {
		return
	}
	w.forgetNotice()
	select {
	case w.notices <- kv:
	default: // delivered by another at this moment: it is the same
	}
}

func (w *waiter) forgetNotice() {
	select {
	case <-w.notices:
	default:
	}
}

// doubt makes the waiter ask how it stands.
func (w *waiter) doubt() {
	select {
	case w.ask <- struct{}{}:
	default:
	}
}

// withdrawn deals with a notice that was removed.
func (c *Client) withdrawn(id string) {
	if w := c.waiter(id); w != nil {
		w.forgetNotice()
		w.doubt()
	}
}

// doubtAll makes all ask how they stand who have no notice waiting: their places may be
// gone, or come back.
func (c *Client) doubtAll() {
	c.waitersMu.Lock()
	defer c.waitersMu.Unlock()
	for _, w := range c.waiters {
		if len(w.notices) == 0 {
			w.doubt()
		}
	}
}

// noticesSince returns the revision from which on there may be notices for waiters of
// the session. False means that nobody waits.
func (s *session) noticesSince() (rev int64, ok bool) {
	s.c.waitersMu.Lock()
	defer s.c.waitersMu.Unlock()
	rev = math.MaxInt64
	for _, w := range s.c.waiters {
		if w.a.s == s {
			rev, ok = min(rev, w.since), true
		}
	}
	return rev, ok
}

// readNotice reads a releaser's notice: the attempt has the key.
func (a *attempt) readNotice(kv *mvccpb.KeyValue) bool {
	var m notice
	if err := json.Unmarshal(kv.Value, &m); err != nil || m.Version > valueVersion {
		a.s.c.log.Warn("word of a hand-over cannot be read", zap.ByteString("mail", kv.Key), zap.Error(err))
		return false
	}
	a.granted, a.epoch = kv.ModRevision, &txn.Epoch{Value: m.Epoch, Rev: m.Rev}
	a.noticed, a.line = true, line{next: m.Next, more: m.More, known: true}
	a.trace = m.Trace
	return true
}

// handed notes that the attempt was handed the key, for all that is known: then
// there is a notice that was not read.
func (a *attempt) handed() { a.noticed, a.line = true, unread }

// isNotice reports whether an etcd key is a notice to a waiter of this client, and
// returns the waiter's id.
func (l layout) isNotice(name string) (id string, ok bool) {
	return strings.CutPrefix(name, l.notices())
}
