package queue

import "time"

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
