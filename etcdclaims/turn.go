package etcdclaims

import "sync"

// turns tells watches that revisions may be others now: etcd was seen to go back
// to an earlier one, or the epoch was changed, as it is after that. A watch
// resumes at a revision from before then, and stays silent until etcd gets there.
// The same is told when their stream was found to hang.
type turns struct {
	mu sync.Mutex
	ch chan struct{}
}

// next returns what is closed at the next turn.
func (t *turns) next() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ch == nil {
		t.ch = make(chan struct{})
	}
	return t.ch
}

func (t *turns) turn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ch != nil {
		close(t.ch)
		t.ch = nil
	}
}
