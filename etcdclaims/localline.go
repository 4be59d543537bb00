package etcdclaims

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
)

// localLine is the local waiters of all claims of a client, and the keys that one caller
// asks etcd for while others of the client wait to ask. Its mutex guards all local queues
// and the changing fields of the local waiters in them. The registry's mutex is the only
// one that is taken while it is held.
type localLine struct {
	mu     sync.Mutex               // of the local queues and waiters, too
	asking map[string]chan struct{} // by key: closed when the Acquire that asks etcd has its place
}

// localQueue is the local waiters of one term, or of a waiter that the key was handed
// to and that has no term yet. The mutex of localLine guards it.
type localQueue struct {
	waiters []*localWaiter
	kept    int  // how many there were when those who had left were last removed
	closed  bool // it takes none any more
	reading bool // etcd is being asked for the arrival of all of them
}

// join puts a local waiter at the end of a queue that takes any.
func (l *localLine) join(q *localQueue, f *localWaiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.joinLocked(q, f)
}

// joinBehind puts f at the end of the queue that before is in. It returns false if before is
// in no queue, or if that queue is closed.
func (l *localLine) joinBehind(before, f *localWaiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return before.in != nil && l.joinLocked(before.in, f)
}

func (l *localLine) joinLocked(q *localQueue, f *localWaiter) bool {
	if q.closed {
		return false
	}
	if len(q.waiters) >= 2*q.kept+16 { // callers may come and leave for as long as the key is held
		q.waiters = slices.DeleteFunc(q.waiters, func(f *localWaiter) bool { return f.state == left })
		q.kept = len(q.waiters)
	}
	q.waiters, f.in = append(q.waiters, f), q
	return true
}

// waiting returns the local waiters of a queue.
func (l *localLine) waiting(q *localQueue) []*localWaiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(q.waiters)
}

// next takes the first local waiter that still waits, to hand it the key, or nil.
func (l *localLine) next(q *localQueue) *localWaiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(q.waiters) > 0 {
		f := q.waiters[0]
		q.waiters = q.waiters[1:]
		if f.state != left {
			f.state = handed
			return f
		}
	}
	return nil
}

// putBack puts a local waiter back to the front that was not handed the key.
func (l *localLine) putBack(q *localQueue, f *localWaiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.state == handed {
		f.state = waitingLocally
		q.waiters = append([]*localWaiter{f}, q.waiters...)
	}
}

// settle notes that a local waiter was handed the key, and reports whether its caller
// still waits. That caller waits for done from here on.
func (l *localLine) settle(f *localWaiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.state == left {
		return false
	}
	f.state = settled
	return true
}

// leave ends the wait of a local waiter. False means that its key was handed over, or
// that it was sent to the line in etcd, of which done has word.
func (l *localLine) leave(f *localWaiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.state == settled {
		return false
	}
	f.state = left
	return true
}

// close sends all local waiters of a queue to the line in etcd, in their order. It takes
// none any more.
func (l *localLine) close(q *localQueue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.closed = true
	requeue(q.waiters)
	q.waiters = nil
}

// closeTo is close, but the local waiters move to the front of another queue, if that
// takes any.
func (l *localLine) closeTo(q, to *localQueue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.closed = true
	l.moveLocked(q, to)
}

func (l *localLine) moveLocked(from, to *localQueue) {
	if to == nil || to.closed {
		requeue(from.waiters)
	} else {
		for _, f := range from.waiters {
			f.in = to
		}
		to.waiters = append(from.waiters, to.waiters...)
	}
	from.waiters = nil
}

// requeue sends local waiters to the line in etcd, in their order. The mutex of
// localLine is held.
func requeue(fs []*localWaiter) {
	var before *localWaiter
	for _, f := range fs {
		if f.state == left {
			continue
		}
		f.state, f.before, f.in = settled, before, nil
		before = f
		f.done <- nil
	}
}

// leaveTo moves the local waiters of the term behind a waiter of this client that was
// handed the key, if that has the same session: their claims will be on its lease,
// and their places are counted in their own session.
func (l *localLine) leaveTo(t *term, id string) {
	c := t.s.c
	w := c.waiters.get(id)
	l.mu.Lock()
	t.local.closed = true
	var to *localQueue
	if next := c.keys.term(t.Key); next != nil && next.ID == id && next.s == t.s && !next.local.closed {
		to = &next.local
	} else if w != nil && w.a.s == t.s {
		to = &w.local
	}
	l.moveLocked(&t.local, to)
	l.mu.Unlock()
	if w != nil {
		l.inherit(w, c.keys.term(t.Key))
	}
}

// inherit gives a term the local waiters that were left to it while it was waited
// for.
func (l *localLine) inherit(w *waiter, t *term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t != nil && t.ID == w.a.ID && !t.local.closed {
		l.moveLocked(&w.local, &t.local)
	}
}

// askInTurn lets those that want one key at once ask for it one after the other:
// if the first gets the key, the others can wait behind it, in their order, rather than
// in etcd's line. The caller calls known when it has its place, in whatever way.
// Releases of the slots of one key take turns too, by the name of their line.
func (l *localLine) askInTurn(ctx context.Context, s *session, key string) (known func()) {
	mine := make(chan struct{})
	l.mu.Lock()
	before := l.asking[key]
	l.asking[key] = mine
	l.mu.Unlock()
	known = sync.OnceFunc(func() {
		l.mu.Lock()
		if l.asking[key] == mine {
			delete(l.asking, key)
		}
		l.mu.Unlock()
		close(mine)
	})
	if before == nil {
		return known
	}
	enough := time.NewTimer(txn.Hanging)
	defer enough.Stop()
	select {
	case <-before:
	case <-enough.C:
	case <-s.dead:
	case <-ctx.Done():
	}
	return known
}
