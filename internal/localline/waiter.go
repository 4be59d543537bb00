package localline

// Waiter is an acquisition that waits for a term of its own client. A is the attempt to
// acquire, and T the term that it gets.
type Waiter[A, T any] struct {
	Attempt A
	Done    chan T // its own term; the zero T: it goes the usual way

	// Guarded by the mutex of the Line:
	arrival int64
	state   state
	in      *Queue[A, T] // that it waits in, or was handed the key from; nil once it was sent to the line

	// Written under that mutex before Done is sent to, and read after Done was
	// received from:
	Last   bool          // it goes to the end of the line, behind no other waiter
	Before *Waiter[A, T] // the one that goes to the line before it

	Placed chan struct{} // closed when it has a place in line, has left, or waits locally again

	// Those that wait for Placed go on behind this one: the waiter that took its place,
	// or, if it left, the one before it. Written before Placed is closed.
	Again *Waiter[A, T]
}

type state int

const (
	waitingLocally state = iota
	handed               // a request that hands it the key is under way
	settled              // Done was sent to
	left                 // no caller waits any more
)

// NewWaiter returns a waiter that is in no queue.
func NewWaiter[A, T any](a A) *Waiter[A, T] {
	return &Waiter[A, T]{Attempt: a, Done: make(chan T, 1), Placed: make(chan struct{})}
}
