package queue

import (
	"context"
	"runtime"
	"sync/atomic"
	"weak"

	"github.com/etcdclaims/claims/internal/attach"
)

// holder is this process as one that has items of a queue: its sessions, and the leases of etcd
// for what remains of completed items.
type holder struct {
	*store
	sessions sessions
	retained retention // of tombstones
	noted    retention // of notes of adopted leases
	lanes    lanes     // of partition keys

	closing atomic.Bool
	ended   chan struct{} // closed at the end of Close
	why     error         // of Close
	forget  func()        // of the client; see attach
}

// newHolder returns the holder of a queue. tidy is called when items may be taken that no
// lease is of.
func newHolder(st *store, tidy func()) *holder {
	h := &holder{store: st, ended: make(chan struct{}), forget: func() {}}
	h.sessions.init(st, tidy)
	h.lanes.init(st, func(ctx context.Context) (sender, error) { return h.sessions.live(ctx) }, h.promoteDue)
	h.retained.init(st.cfg.Retention)
	h.noted.init(noteFor)
	return h
}

// attach has Close of the client close the queue. A queue that was dropped before anything
// ran in the background may be collected.
func (q *holder) attach() {
	dropped := weak.Make(q)
	q.forget = attach.Of(q.claims).OnClose(func(ctx context.Context) {
		if q := dropped.Value(); q != nil {
			_ = q.end(ctx) // the keeper of the queue finds what is left
		}
	})
	runtime.AddCleanup(q, func(forget func()) { forget() }, q.forget)
}

// end closes the queue, once.
func (q *holder) end(ctx context.Context) error {
	if q.closing.CompareAndSwap(false, true) {
		turns, cancel := context.WithTimeout(ctx, turnsFor)
		_, _ = q.lanes.settle(turns) // else the keeper gives the turns
		cancel()
		q.stop(errClosed)
		q.why = q.sessions.close(ctx)
		q.mu.Lock()
		q.stopped = true
		q.mu.Unlock()
		q.wg.Wait()
		close(q.ended)
	}
	<-q.ended
	return q.why
}
