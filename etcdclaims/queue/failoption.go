package queue

import (
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// FailOption sets how long a failed item waits, or its priority from then on.
type FailOption interface{ applyFail(*failOptions) }

type failOptions struct {
	backoff  etcdclaims.Backoff
	priority *int // nil: the item's
}

type failOption func(*failOptions)

func (f failOption) applyFail(o *failOptions) { f(o) }

// Backoff makes the item wait for base after its first failure, twice as long after each
// further failure, and never longer than limit. The second half of each wait is random.
func Backoff(base, limit time.Duration) FailOption {
	return failOption(func(o *failOptions) { o.backoff = etcdclaims.ExponentialBackoff(base, limit) })
}

// BackoffFunc makes the item wait for as long as f returns for the number of the
// attempt, 1 being the first. Nil means Config.Backoff, which is the default.
func BackoffFunc(f etcdclaims.Backoff) FailOption {
	return failOption(func(o *failOptions) {
		if f != nil {
			o.backoff = f
		}
	})
}
