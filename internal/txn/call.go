package txn

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// call is a request that waits for a round trip.
type call struct {
	Request
	ctx     context.Context
	meta    Metadata
	own     string // the request's own ticket, for a round trip without others
	ticket  string // that of its round trip; its caller may have gone, and taken another
	width   int
	size    int
	lease   int64
	sent    bool // its round trip has begun
	gone    bool // its caller no longer waits
	joint   bool // it may be of a joint group
	company *company
	settled chan struct{}
	resp    *clientv3.TxnResponse // set when settled is closed, as err is
	err     error
}

func newCall(ctx context.Context, r Request) *call {
	c := &call{Request: r, ctx: ctx, meta: MetadataOf(ctx), settled: make(chan struct{})}
	if c.Ticket != nil {
		c.own = *c.Ticket
	}
	c.width, c.size, c.lease = width(c.In)+c.shared(), size(c.In), leaseOf(c.In)
	c.joint = jointly(&c.Request)
	if c.Void != nil {
		c.lease = oneLease(c.lease, int64(c.Void.Lease))
	}
	return c
}

// answer gives a call the reply of the operation that it was.
func (c *call) answer(op *pb.ResponseOp, header *pb.ResponseHeader, listed bool) {
	if listed || c.Nested {
		c.resp = &clientv3.TxnResponse{Succeeded: true, Responses: []*pb.ResponseOp{op}}
	} else {
		c.resp = (*clientv3.TxnResponse)(op.GetResponseTxn())
	}
	c.resp.Header = header // nested replies have none
	close(c.settled)
}

// urgency is 1 for an urgent call, 0 for another.
func (c *call) urgency() int {
	if c.Urgent {
		return 1
	}
	return 0
}

// isSettled reports whether the call has its outcome.
func (c *call) isSettled() bool {
	select {
	case <-c.settled:
		return true
	default:
		return false
	}
}

// shared returns how many conditions the call has in addition to those of its
// transaction.
func (c *call) shared() (n int) {
	if c.Ticket != nil {
		n++
	}
	if c.Epoch != nil {
		n++
	}
	return n
}

// await waits for the reply to a call, or until its context or its time ends.
func (b *Batcher) await(c *call) (*clientv3.TxnResponse, error) {
	var late <-chan time.Time
	if !c.Until.IsZero() {
		t := b.timer(time.Until(c.Until))
		defer b.timers.Put(t)
		defer t.Stop()
		late = t.C
	}
	var why error
	select {
	case <-c.settled:
		return c.resp, c.err
	case <-c.ctx.Done():
	case <-late:
		why = ErrNoAnswer
	case <-b.cfg.IO.Done(): // nothing is sent any more
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.settled: // at the same moment
		return c.resp, c.err
	default:
	}
	c.gone = true // it is left out of later round trips
	c.company.leave()
	if why == nil {
		why = ContextError(c.ctx)
	}
	if why == nil {
		why = ContextError(b.cfg.IO)
	}
	if !c.sent {
		return nil, why
	}
	return nil, unknownError{why}
}

// timer returns a timer. Its user stops it and puts it back.
func (b *Batcher) timer(d time.Duration) *time.Timer {
	if t, ok := b.timers.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

// company is the callers of a shared round trip, which is cancelled when the last of
// them no longer waits. The mutex of Batcher guards it.
type company struct {
	waiting int
	cancel  context.CancelFunc
}

// accompany makes the calls of a round trip one company.
func (b *Batcher) accompany(calls []*call, cancel context.CancelFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := &company{waiting: 1, cancel: cancel}
	for _, c := range calls {
		if c.company = all; !c.gone {
			all.waiting++
		}
	}
	all.leave() // which waited for the others to be counted
}

func (c *company) leave() {
	if c == nil {
		return
	}
	if c.waiting--; c.waiting == 0 {
		c.cancel()
	}
}

func fail(calls []*call, err error) {
	for _, c := range calls {
		c.err = err
		close(c.settled)
	}
}
