package lease

import (
	"math"
	"time"
)

const (
	rateError   = 0.01                   // rho: how far two clocks' rates may differ
	leastMargin = 500 * time.Millisecond // M is at least this
	// MinTTL is the shortest lease time with which a second try to renew is in time by the rule alone.
	MinTTL = 5 * time.Second
)

// Timing is the deadline rule for one granted TTL. Soft and Hard count from before the request for it was sent.
type Timing struct {
	TTL     time.Duration
	Renew   time.Duration // from one renewal to the next
	Attempt time.Duration // the longest that one attempt may take
	Soft    time.Duration // when handlers are told to stop
	Hard    time.Duration // when claims have expired
}

// NewTiming returns the rule for a TTL, with so much time between the two deadlines.
func NewTiming(ttl, drain time.Duration) Timing {
	margin := max(leastMargin, ttl/10)
	hard := ttl - time.Duration(float64(ttl)*rateError) - margin
	t := Timing{TTL: ttl, Renew: ttl / 3, Attempt: ttl / 6, Soft: hard - drain, Hard: hard}
	if ttl < MinTTL {
		// The margin does not shrink with the TTL, so that a third of it would
		// be too late for a second try.
		t.Renew = max(min(t.Renew, t.Soft*2/5), 0)
	}
	return t
}

// Drain is how long a handler has to stop.
func (t Timing) Drain() time.Duration { return t.Hard - t.Soft }

// Seconds rounds up to what a lease can have.
func Seconds(d time.Duration) time.Duration {
	return time.Duration(math.Ceil(d.Seconds())) * time.Second
}
