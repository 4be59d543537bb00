package txn

import (
	"sync"
	"sync/atomic"
)

// Asks let callers share a request that they would make at the same time. The first of them
// makes it. Those that come before it has left wait for its answer, which is theirs, too: etcd
// judged after they had asked. So a key that everybody polls costs one request at a time,
// however many callers there are.
//
// The zero value is ready. No other mutex is taken while its own is held.
type Asks[K comparable, A any] struct {
	mu    sync.Mutex
	byKey map[K]*Ask[K, A]
}

// Ask is a request whose answer others may share.
type Ask[K comparable, A any] struct {
	// Departed is set when the request was sent: later callers need an ask of their own. It
	// is for Request.Departed.
	Departed atomic.Bool

	key K

	// Guarded by the mutex of Asks until it was answered:
	done     chan struct{} // closed with the answer; nil if no caller waits for it
	answered bool
	answer   A
}

// Join returns the ask that the caller shares, or a new one of which it is the first. The first
// calls Answer. K is all that callers have in common that share an answer.
func (s *Asks[K, A]) Join(k K) (a *Ask[K, A], first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a = s.byKey[k]; a != nil && !a.Departed.Load() {
		if a.done == nil {
			a.done = make(chan struct{})
		}
		return a, false
	}
	if s.byKey == nil {
		s.byKey = make(map[K]*Ask[K, A])
	}
	a = &Ask[K, A]{key: k}
	s.byKey[k] = a
	return a, true
}

// Answer gives the callers that share the ask their answer. Only the first one counts.
// Most asks have one caller, so the answer is made only if another waits for it.
func (s *Asks[K, A]) Answer(a *Ask[K, A], answer func() A) {
	s.mu.Lock()
	if s.byKey[a.key] == a {
		delete(s.byKey, a.key) // no caller can join it any more
	}
	before := a.answered
	a.answered = true
	s.mu.Unlock()
	if before || a.done == nil {
		return
	}
	a.answer = answer()
	close(a.done)
}

// Answered returns a channel that is closed when the answer is there, for callers that share it.
func (a *Ask[K, A]) Answered() <-chan struct{} { return a.done }

// Answer returns the answer that is there.
func (a *Ask[K, A]) Answer() A { return a.answer }
