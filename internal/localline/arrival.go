package localline

import "slices"

// The arrival of a waiter is the revision of the first reply to any request that was sent after it
// came. A place in line that is younger than the arrival was taken later.

// BeginReading returns the local waiters for which the caller may ask etcd, unless
// another does that already. EndReading must follow.
func (l *Line[A, T]) BeginReading(q *Queue[A, T]) (there []*Waiter[A, T], ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.reading {
		return nil, false
	}
	q.reading = true
	return slices.Clone(q.waiters), true
}

// EndReading ends what BeginReading began.
func (l *Line[A, T]) EndReading(q *Queue[A, T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.reading = false
}

// GiveWay sends those of some local waiters that have no arrival to the end of the line
// in etcd.
func (l *Line[A, T]) GiveWay(q *Queue[A, T], there []*Waiter[A, T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var late []*Waiter[A, T]
	q.waiters = slices.DeleteFunc(q.waiters, func(f *Waiter[A, T]) bool {
		if f.arrival > 0 || !slices.Contains(there, f) {
			return false
		}
		f.Last = true
		late = append(late, f)
		return true
	})
	requeue(late)
}

// RecordArrival notes that local waiters came before a revision.
func (l *Line[A, T]) RecordArrival(fs []*Waiter[A, T], rev int64) {
	if len(fs) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range fs {
		if f.arrival == 0 {
			f.arrival = rev
		}
	}
}

// Arrival returns the arrival of a waiter, 0 if it is not known.
func (l *Line[A, T]) Arrival(f *Waiter[A, T]) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return f.arrival
}
