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

// A releaser tells the waiter that it handed the key to by a mail under the
// prefix that the waiter's client watches anyway, in the very transaction that
// puts the claim: the event is proof of the claim, and its revision the fence.
// The watch runs since the client's first session began, before anybody could be
// in line, so that nothing can be missed; what an interruption keeps back is read
// after it, and what a watch that has gone deaf keeps back is found by the
// verification that follows each renewal.

// mail is the value of session/<instance>/won/<claim>. It stays until the claim
// ends.
type mail struct {
	Version int     `json:"v"`
	Epoch   int64   `json:"epoch,omitempty"`    // under which the fence is
	Rev     int64   `json:"epochRev,omitempty"` // ModRevision of the epoch's key
	Next    []place `json:"next,omitempty"`     // who is first in line behind, as far as the releaser knew
	More    bool    `json:"more,omitempty"`     // others stand behind those
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
	since   int64                 // no mail to it is older
	mail    chan *mvccpb.KeyValue // the last one
	ask     chan struct{}         // news may have been missed
	evicted atomic.Pointer[error] // what it was handed was forced from it

	awaited awaited // guarded by the client's mailMu

	// Guarded by the client's followMu:
	followers []*follower // of the term that ended for its sake
	over      bool        // nobody waits any more
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
		c.mailMu.Lock()
		defer c.mailMu.Unlock()
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
	s.c.mailMu.Lock()
	defer s.c.mailMu.Unlock()
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
	c.mailMu.Lock()
	defer c.mailMu.Unlock()
	if x.w.awaited == x.awaited {
		x.w.doubt()
	}
}

// expectMail lists a waiter; the caller ends that with noMail.
func (c *Client) expectMail(a *attempt) *waiter {
	w := &waiter{a: a, since: c.store.seen.Load(), mail: make(chan *mvccpb.KeyValue, 1), ask: make(chan struct{}, 1)}
	c.mailMu.Lock()
	defer c.mailMu.Unlock()
	c.waiters[a.id] = w
	return w
}

func (c *Client) noMail(w *waiter) {
	c.mailMu.Lock()
	delete(c.waiters, w.a.id)
	c.mailMu.Unlock()
	c.followMu.Lock()
	defer c.followMu.Unlock()
	w.over = true
	c.scatterLocked(w.followers)
	w.followers = nil
}

func (c *Client) waiter(id string) *waiter {
	c.mailMu.Lock()
	defer c.mailMu.Unlock()
	return c.waiters[id]
}

// deliver gives a mail to whom it is for, if that still waits. What was
// delivered before is out of date.
func (c *Client) deliver(kv *mvccpb.KeyValue) {
	w := c.waiter(path.Base(string(kv.Key)))
	if w == nil {
		return
	}
	w.forgetMail()
	select {
	case w.mail <- kv:
	default: // delivered by another at this moment: it is the same
	}
}

func (w *waiter) forgetMail() {
	select {
	case <-w.mail:
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

// withdrawn deals with a mail that was removed.
func (c *Client) withdrawn(id string) {
	if w := c.waiter(id); w != nil {
		w.forgetMail()
		w.doubt()
	}
}

// doubtAll makes all ask how they stand who have no mail: their places may be
// gone, or come back.
func (c *Client) doubtAll() {
	c.mailMu.Lock()
	defer c.mailMu.Unlock()
	for _, w := range c.waiters {
		if len(w.mail) == 0 {
			w.doubt()
		}
	}
}

// mailSince returns from which revision on there may be mail for waiters of the
// session; false says that nobody waits.
func (s *session) mailSince() (rev int64, ok bool) {
	s.c.mailMu.Lock()
	defer s.c.mailMu.Unlock()
	rev = math.MaxInt64
	for _, w := range s.c.waiters {
		if w.a.s == s {
			rev, ok = min(rev, w.since), true
		}
	}
	return rev, ok
}

// told reads a releaser's mail: the attempt has the key.
func (a *attempt) told(kv *mvccpb.KeyValue) bool {
	var m mail
	if err := json.Unmarshal(kv.Value, &m); err != nil || m.Version > valueVersion {
		a.s.c.log.Warn("word of a hand-over cannot be read", zap.ByteString("mail", kv.Key), zap.Error(err))
		return false
	}
	a.granted, a.epoch = kv.ModRevision, &txn.Epoch{Value: m.Epoch, Rev: m.Rev}
	a.mailed, a.line = true, line{next: m.Next, more: m.More, known: true}
	return true
}

// handed notes that the attempt was handed the key, for all that is known: then
// it has mail, which it has not read.
func (a *attempt) handed() { a.mailed, a.line = true, unread }

// isMail reports whether an etcd key is a mail of this client's, and to whom.
func (l layout) isMail(name string) (id string, ok bool) {
	return strings.CutPrefix(name, l.mails())
}
