package queue

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/item"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// CancelOption changes what Cancel does.
type CancelOption interface{ apply(*cancelling) }

// cancelling is what Cancel is to do.
type cancelling struct {
	taken bool // also to an item that a worker has
	why   string
}

// AlsoTaken makes Cancel remove the item also while a worker has it. The delivery of the worker ends, and its
// context with it. The cause matches ErrCancelled. Its text has the owner label of the client that called Cancel,
// or the person that admin.As names, and the first 1,024 bytes of why. Verbs of the delivery return the same error.
//
// The worker learns of it by a watch, as a rule within a second, else by its next verb or within about a
// minute. Until then the handler continues, and Delivery.Check returns nil. So fence what the handler
// writes: the item can be enqueued and handled again before the handler has stopped.
func AlsoTaken(why string) CancelOption {
	return setting[cancelling](func(c *cancelling) { c.taken, c.why = true, why })
}

// Cancel removes an item that no worker has, or a dead letter. With the option AlsoTaken it also removes
// an item that a worker has. The id can then be enqueued again. Nothing remains of the item: Wait returns
// ErrNotFound.
//
// Errors: ErrNotFound if there is no such item, ErrTaken if a worker has it and AlsoTaken is not given, and
// etcdclaims.ErrUnknown if a lost reply could not be resolved. If two calls cancel an item at
// the same time and a reply is lost, both can return nil.
func (q *Queue) Cancel(ctx context.Context, id string, opts ...CancelOption) error {
	const removed = item.VerbComplete // is what endOf calls any removal of a waiting item
	c := chosen(cancelling{}, opts)
	act := q.act(ctx, audit.CancelItem, id, c.why)
	return q.change(ctx, act, "cancel", removed, id, func(f found) (*pb.TxnRequest, error) {
		switch {
		case f.Where == Taken && c.taken:
			return q.cancelTaken(ctx, f, c.why)
		case f.Where == Taken:
			return nil, fmt.Errorf("%w: %s has it", ErrTaken, f.Owner)
		case f.Where == Completed:
			return nil, ErrNotFound
		}
		return item.Cancel{Keys: q.keys, Entry: f.entry}.Build(), nil
	})
}

// cancelTaken is the request that removes an item that a worker has.
func (q *Queue) cancelTaken(ctx context.Context, f found, why string) (*pb.TxnRequest, error) {
	lease, err := q.markLease(ctx)
	if err != nil {
		return nil, err
	}
	n := item.Notice{By: audit.Who(ctx, q.claims), Why: why, At: q.now().UTC()}
	return item.CancelTaken{Keys: q.keys, Entry: f.entry, Notice: n, Lease: int64(lease)}.Build(), nil
}
