package etcdclaims

import (
	"context"
	"sync"

	"github.com/etcdclaims/claims/internal/txn"
)

// closing is the call that closes a client.
type closing struct {
	first sync.Once
	done  chan struct{} // closed when that has returned
	err   error         // its result, once done is closed

	mu         sync.Mutex                  // no other is taken while it is held
	onReleased []func(ctx context.Context) // called when the claims are released
}

func newClosing() closing { return closing{done: make(chan struct{})} }

// once calls f, the first time. Later calls wait for that.
func (cl *closing) once(ctx context.Context, f func(context.Context) error) error {
	first := false
	cl.first.Do(func() { first = true })
	if first {
		defer close(cl.done)
		cl.err = f(ctx)
		return cl.err
	}
	select {
	case <-cl.done:
		return cl.err
	case <-ctx.Done():
		return txn.ContextError(ctx)
	}
}

// add has f called when the claims are released.
func (cl *closing) add(f func(ctx context.Context)) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.onReleased = append(cl.onReleased, f)
}

func (cl *closing) released(ctx context.Context) {
	cl.mu.Lock()
	all := cl.onReleased
	cl.mu.Unlock()
	for _, f := range all {
		f(ctx)
	}
}
