package queue

import (
	"time"
)

// DeliveryValues describes a delivery at one instant. It is plain data that can be compared,
// stored and sent. [Delivery.Values] returns it.
type DeliveryValues struct {
	ID       string // see Delivery.DeliveryID
	Item     string // the item's id
	Queue    string
	Holder   string // see Delivery.Holder
	Obtained time.Time
	// Expires is when the lease ends unless it is renewed, by the wall clock of the
	// process. For a delivery that is over, it is when the process learned that. It is zero
	// for an adopted one, because only etcd knows when the lease of such a delivery ends.
	Expires time.Time
	Key     string // the item's place in the order of its queue, see Delivery.Key
}

// Expired reports whether the lease is over at an instant, unless it is renewed before. A
// lease with no known end has expired. It is a pure function.
func (v DeliveryValues) Expired(now time.Time) bool { return !now.Before(v.Expires) }

// Remaining returns how long the lease lasts from an instant on, unless it is renewed
// before. It returns 0 if the lease has expired. It is a pure function.
func (v DeliveryValues) Remaining(now time.Time) time.Duration {
	if v.Expired(now) {
		return 0
	}
	return v.Expires.Sub(now)
}

// Values returns the values of the delivery as of now. It sends no request.
func (l *Delivery) Values() DeliveryValues {
	v := DeliveryValues{ID: l.DeliveryID(), Item: l.ID(), Queue: l.Queue(), Holder: l.Holder(), Obtained: l.obtain, Key: l.Key()}
	l.mu.Lock()
	s, over := l.s, l.over
	l.mu.Unlock()
	switch {
	case !over.IsZero():
		v.Expires = over
	case s != nil:
		v.Expires = l.q.now().Add(s.claim.Remaining())
	}
	v.Expires = v.Expires.Round(0) // the wall clock's
	return v
}
