package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
)

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
