package etcdclaims

import "sync"

// generation notifies watches that they must begin anew: etcd went back to an earlier
// revision, or the epoch was changed, as it is after that. A watch would resume at a
// revision from before, and stay silent until etcd gets there. A stream that hangs
// is another reason.
type generation struct {
	mu sync.Mutex
	ch chan struct{}
}

// next returns a channel that is closed when the next generation begins.
func (t *generation) next() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ch == nil {
		t.ch = make(chan struct{})
	}
	return t.ch
}

func (t *generation) advance() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ch != nil {
		close(t.ch)
		t.ch = nil
	}
}
