// Package life is the life of a client: the contexts that end with it, and the goroutines that its end waits for.
package life

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/etcdclaims/claims/internal/claimerr"
)

// Life is the life of a client. It ends in two steps. BeginEnd refuses new calls, and End ends what the client
// does on its own account. Its methods are safe for concurrent use.
type Life struct {
	// IO is the context of requests that the client sends on its own account. End ends it.
	IO context.Context
	// Open ends when Close is called.
	Open context.Context

	stop context.CancelFunc
	shut context.CancelCauseFunc

	mu      sync.Mutex  // no other is taken while it is held
	closed  atomic.Bool // set with the mutex held
	running sync.WaitGroup
}

// New returns the life of a new client.
func New() *Life {
	l := new(Life)
	l.IO, l.stop = context.WithCancel(context.Background())
	l.Open, l.shut = context.WithCancelCause(context.Background())
	return l
}

// Go runs f on a goroutine that End waits for, unless the client is being closed. It reports whether it does.
func (l *Life) Go(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return false
	}
	l.running.Go(f)
	return true
}

// Finish is Go for what must still be done while the client is being closed.
func (l *Life) Finish(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.IO.Err() != nil {
		return false
	}
	l.running.Go(f)
	return true
}

// Closed reports whether BeginEnd was called.
func (l *Life) Closed() bool { return l.closed.Load() }

// Explain adds to the error of a call that the client was closed, if it was. What the error says beside that, such as that
// its outcome is unknown, stays.
func (l *Life) Explain(err error) error {
	switch {
	case l.Open.Err() == nil:
		return err
	case err == nil:
		return claimerr.ErrClosed
	case errors.Is(err, claimerr.ErrClosed):
		return err
	}
	return fmt.Errorf("%w (%w)", claimerr.ErrClosed, err)
}

// BeginEnd refuses new goroutines of Go.
func (l *Life) BeginEnd() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed.Store(true)
}

// Refuse ends Open.
func (l *Life) Refuse() { l.shut(claimerr.ErrClosed) }

// End ends IO, and waits for all goroutines.
func (l *Life) End() {
	l.mu.Lock()
	l.stop() // no goroutine begins after it
	l.mu.Unlock()
	l.running.Wait()
}
