package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
)

// ClaimOption shapes one claiming call.
type ClaimOption interface{ apply(*claimOptions) }

type claimOptions struct{ ttl time.Duration }

// TTL sets the lease duration of the claimed items, between etcdclaims.MinTTL (2 s if
// the client allows short ones) and a year. Items claimed with one duration share a
// session. Zero means Config.TTL, which is the default.
func TTL(d time.Duration) ClaimOption {
	return setting[claimOptions](func(o *claimOptions) { o.ttl = d })
}

// TryClaim claims up to n visible items for this worker, and does not wait. A Batch
// without deliveries and no error means that no item is visible. If items are taken then,
// TryClaim first recovers those of dead workers. It reads the whole queue, for which etcd also
// visits the items that were completed since it last compacted: workers that are always there
// call Claim or Work. ctx bounds only the claiming; the
// deliveries have contexts of their own.
//
// Errors: ErrConfig, etcdclaims.ErrLost if the leases of this process are revoked again
// and again, and those of etcdclaims.Client.TryAcquire. After any error nothing stays
// claimed: items that were claimed by a request whose reply was lost are given back.
func (q *Queue) TryClaim(ctx context.Context, n int, opts ...ClaimOption) (Batch, error) {
	b, err := q.claim(ctx, n, false, opts)
	return b, q.fail("claim", err)
}

// Claim is TryClaim, but waits until at least one item is visible. It does not poll: it
// wakes when an item is enqueued, is given back or vests. In case an event was lost, it
// also reads again after a third of the TTL, at most 10 s. If that read takes long, as in a queue
// in which many items were completed since etcd last compacted, it is made less often, about
// each minute at least.
//
// If ctx ends first the error matches its cause.
func (q *Queue) Claim(ctx context.Context, n int, opts ...ClaimOption) (Batch, error) {
	b, err := q.claim(ctx, n, true, opts)
	return b, q.fail("claim", err)
}

func (q *Queue) claim(ctx context.Context, n int, wait bool, opts []ClaimOption) (Batch, error) {
	if n <= 0 {
		return Batch{}, fmt.Errorf("number of items %d is not positive", n)
	}
	if wait {
		defer q.await()()
	}
	return q.ask(ctx, &want{n: n, wait: wait, ttl: cmp.Or(chosen(claimOptions{}, opts).ttl, q.cfg.TTL)})
}

// ask has the claimer answer.
func (q *Queue) ask(ctx context.Context, w *want) (Batch, error) {
	w.n = min(w.n, itemsPerRequest) // nobody gets more at once, and the claimer adds these numbers
	w.reply = make(chan reply, 1)
	if err := q.claimer.ask(w); err != nil {
		return Batch{}, err
	}
	select {
	case r := <-w.reply:
		return r.batch, r.err
	case <-ctx.Done():
		if q.claimer.leave(w) {
			return Batch{}, context.Cause(ctx)
		}
		r := <-w.reply // it was answered just now
		return r.batch, r.err
	}
}

// Batch is the result of TryClaim or Claim.
type Batch struct {
	// Deliveries are the claimed items, in the order of the queue. The worker has each item
	// until it completes, fails or gives it back.
	Deliveries []*Delivery
	// Taken is how many items workers had, if nothing was claimed. It distinguishes an
	// empty queue from a busy one. If other calls of this process claimed items at the same
	// time, it may be only the number of those.
	Taken int
	// Next is when the next item vests. Zero means that no item waits to vest.
	Next time.Time
	// Paused is set if the queue is paused. Nothing is claimed then.
	Paused bool

	visible bool // there are items that this process may claim
}

// want is a caller who wants items.
type want struct {
	n     int  // 0: it only wants to know that there are some
	wait  bool // else it is answered at once
	known bool // it needs no read if the claimer knows the visible items
	ttl   time.Duration
	reply chan reply
	over  bool // it was answered, or left; under the claimer's mutex
}

// tell answers the caller.
func (w *want) tell(r reply) {
	w.over = true
	w.reply <- r
}

type reply struct {
	batch Batch
	err   error
}

// CompleteAll completes the deliveries, as Complete without operations does, with as few
// requests as etcd's limits allow. With the default limits the deliveries of one call of Claim
// take one request. Deliveries of other lease durations or other queues take one for each of
// these, and an adopted delivery takes its own. If ctx carries outgoing gRPC metadata, each
// delivery takes its own.
//
// Each delivery is completed or fails by itself. So after an error some are completed, and a
// delivery that waits for an earlier call does not delay the others. If the reply is lost, the
// outcome of each delivery is looked up as with Complete.
//
// CompleteAll returns when it has an outcome for each delivery: nil if all are completed, else a
// *CompleteAllError. If the error matches etcdclaims.ErrUnknown, call CompleteAll again with the
// deliveries whose outcome is unknown.
func (b Batch) CompleteAll(ctx context.Context) error {
	crowd := txn.NewCrowd(len(b.Deliveries))
	errs := make([]error, len(b.Deliveries))
	var wg sync.WaitGroup
	for i, l := range b.Deliveries {
		wg.Go(func() {
			m := crowd.Member()
			defer m.Leave()
			errs[i] = l.complete(ctx, m)
		})
	}
	wg.Wait()
	if e := (&CompleteAllError{errs}); len(e.Unwrap()) > 0 {
		return e
	}
	return nil
}

// CompleteAllError is returned by Batch.CompleteAll for deliveries that it has not completed,
// or may not have completed. It matches each of their errors.
type CompleteAllError struct {
	// Errs are the errors of Complete, one per delivery in the order of the batch. Those of
	// completed deliveries are nil.
	Errs []error
}

func (e *CompleteAllError) Error() string {
	failed := e.Unwrap()
	text := failed[0].Error()
	if more := len(failed) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more of %d items)", more, len(e.Errs))
	}
	return text
}

// Unwrap returns the errors of the deliveries that were not completed.
func (e *CompleteAllError) Unwrap() []error {
	return slices.DeleteFunc(slices.Clone(e.Errs), func(err error) bool { return err == nil })
}
