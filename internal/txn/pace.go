package txn

import "time"

// pace is how long round trips take, and what follows for a second one beside the first.
//
// To a distant etcd most of a round trip is the way, and a second one at the same time
// costs little. To one that is near it is work, of client and server: it is less for
// calls that share one round trip than for those of two.
type pace struct {
	mean         time.Duration // of late, 0 before the first
	least, older time.Duration // shortest since the beginning of this period, and in the one before
	since        time.Time     // of the period
}

const (
	// slow is after how long a round trip may have others beside it at the earliest, and how
	// long the way to a distant etcd takes at least.
	slow = 5 * time.Millisecond
	// manyCalls that wait are worth a round trip beside one under way that does not carry many.
	manyCalls = 16
	// paceFor is how long the shortest round trip counts at least.
	paceFor = 10 * time.Second
)

// answered notes a round trip that etcd has answered.
func (p *pace) answered(sent, now time.Time) {
	took := now.Sub(sent)
	if p.since.IsZero() {
		p.mean, p.least, p.older, p.since = min(took, Hanging), took, took, now
		return
	}
	p.mean += (min(took, Hanging) - p.mean) / 8 // one that was stuck does not say what is usual
	if now.Sub(p.since) > paceFor {
		p.older, p.least, p.since = p.least, took, now
	}
	p.least = min(p.least, took)
}

// distant reports whether it is the way that takes long.
func (p *pace) distant() bool { return min(p.least, p.older) >= slow }

// late returns the age at which a round trip takes too long for others to wait for it.
func (p *pace) late() time.Duration {
	if p.distant() {
		return slow
	}
	return min(max(slow, 2*p.mean), Hanging)
}

// second reports whether another round trip may begin beside one: for calls that wait, while
// those that are not late carry so many.
func (p *pace) second(carried, waiting int) bool {
	switch {
	case p.distant():
		return carried <= 1 || waiting >= manyCalls
	case carried <= 1:
		return carried == 0 || waiting >= manyCalls
	}
	return waiting > longQueue
}
