package queue

import (
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

// Backoff makes the item wait for as long as f returns for the number of the attempt, 1 being
// the first. etcdclaims.ExponentialBackoff makes such a function. Nil means Config.Backoff,
// which is the default.
func Backoff(f etcdclaims.Backoff) FailOption {
	return failOption(func(o *failOptions) {
		if f != nil {
			o.backoff = f
		}
	})
}
