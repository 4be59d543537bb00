package store

import "sync"

// Generation notifies watches that they must begin anew: etcd went back to an earlier
// revision, or the epoch was changed, as it is after that. A watch would resume at a
// revision from before, and stay silent until etcd gets there. A stream that hangs
// is another reason. The zero Generation is ready for use.
type Generation struct {
	mu sync.Mutex
	ch chan struct{}
}

// Next returns a channel that is closed when the next generation begins.
func (t *Generation) Next() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ch == nil {
		t.ch = make(chan struct{})
	}
	return t.ch
}

// Advance begins the next generation.
func (t *Generation) Advance() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ch != nil {
		close(t.ch)
		t.ch = nil
	}
}
