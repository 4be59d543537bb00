// Package localline is the line of callers that wait within one client, behind the client's own
// claims. It keeps their order and the state of each, and knows nothing of claims.
package localline

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
)

// Line is the local waiters of all claims of a client, and the keys that one caller
// asks etcd for while others of the client wait to ask. Its mutex guards all queues
// and the changing fields of the waiters in them. The registry's mutex of the client is the only
// one that is taken while it is held. The zero Line is ready for use.
type Line[A, T any] struct {
	mu     sync.Mutex               // of the queues and waiters, too
	asking map[string]chan struct{} // by key: closed when the Acquire that asks etcd has its place
}

// Queue is the waiters of one term, or of a waiter that the key was handed
// to and that has no term yet. The mutex of the Line guards it.
type Queue[A, T any] struct {
	Closed bool // it takes none any more

	waiters []*Waiter[A, T]
	kept    int  // how many there were when those who had left were last removed
	reading bool // etcd is being asked for the arrival of all of them
}

// Join puts a local waiter at the end of a queue that takes any.
func (l *Line[A, T]) Join(q *Queue[A, T], f *Waiter[A, T]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.joinLocked(q, f)
}

// JoinBehind puts f at the end of the queue that before is in. It returns false if before is
// in no queue, or if that queue is closed.
func (l *Line[A, T]) JoinBehind(before, f *Waiter[A, T]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return before.in != nil && l.joinLocked(before.in, f)
}

func (l *Line[A, T]) joinLocked(q *Queue[A, T], f *Waiter[A, T]) bool {
	if q.Closed {
		return false
	}
	if len(q.waiters) >= 2*q.kept+16 { // callers may come and leave for as long as the key is held
		q.waiters = slices.DeleteFunc(q.waiters, func(f *Waiter[A, T]) bool { return f.state == left })
		q.kept = len(q.waiters)
	}
	q.waiters, f.in = append(q.waiters, f), q
	return true
}

// Waiting returns the local waiters of a queue.
func (l *Line[A, T]) Waiting(q *Queue[A, T]) []*Waiter[A, T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(q.waiters)
}

// Next takes the first local waiter that still waits, to hand it the key, or nil.
func (l *Line[A, T]) Next(q *Queue[A, T]) *Waiter[A, T] {
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

// PutBack puts a local waiter back to the front that was not handed the key.
func (l *Line[A, T]) PutBack(q *Queue[A, T], f *Waiter[A, T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.state == handed {
		f.state = waitingLocally
		q.waiters = append([]*Waiter[A, T]{f}, q.waiters...)
	}
}

// Settle notes that a local waiter was handed the key, and reports whether its caller
// still waits. That caller waits for Done from here on.
func (l *Line[A, T]) Settle(f *Waiter[A, T]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.state == left {
		return false
	}
	f.state = settled
	return true
}

// Leave ends the wait of a local waiter. False means that its key was handed over, or
// that it was sent to the line in etcd, of which Done has word.
func (l *Line[A, T]) Leave(f *Waiter[A, T]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.state == settled {
		return false
	}
	f.state = left
	return true
}

// Close sends all local waiters of a queue to the line in etcd, in their order. It takes
// none any more.
func (l *Line[A, T]) Close(q *Queue[A, T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.Closed = true
	requeue(q.waiters)
	q.waiters = nil
}

// CloseTo is Close, but the waiters move to the front of another queue, if there is one that
// takes any. Function to returns it, while the mutex is held.
func (l *Line[A, T]) CloseTo(q *Queue[A, T], to func() *Queue[A, T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.Closed = true
	l.moveLocked(q, to())
}

func (l *Line[A, T]) moveLocked(from, to *Queue[A, T]) {
	if to == nil || to.Closed {
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
// the Line is held.
func requeue[A, T any](fs []*Waiter[A, T]) {
	var none T
	var before *Waiter[A, T]
	for _, f := range fs {
		if f.state == left {
			continue
		}
		f.state, f.Before, f.in = settled, before, nil
		before = f
		f.Done <- none
	}
}

// Inherit moves the waiters of a queue to the front of another one, unless that is closed.
func (l *Line[A, T]) Inherit(from, to *Queue[A, T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !to.Closed {
		l.moveLocked(from, to)
	}
}

// Awaited reports whether a queue has waiters, of which some may have left.
func (l *Line[A, T]) Awaited(q *Queue[A, T]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(q.waiters) > 0
}

// AskInTurn lets those that want one key at once ask for it one after the other:
// if the first gets the key, the others can wait behind it, in their order, rather than
// in etcd's line. The caller calls known when it has its place, in whatever way. It does not wait
// once dead is closed. Releases of the slots of one key take turns too, by the name of their line.
func (l *Line[A, T]) AskInTurn(ctx context.Context, dead <-chan struct{}, key string) (known func()) {
	mine := make(chan struct{})
	l.mu.Lock()
	before := l.asking[key]
	if l.asking == nil {
		l.asking = make(map[string]chan struct{})
	}
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
	case <-dead:
	case <-ctx.Done():
	}
	return known
}
