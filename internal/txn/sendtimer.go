package txn

import (
	"context"
	"sync"
	"time"
)

// SendTimer ends a context a fixed time after the first request made with it was
// sent. The time that the request waits for its round trip does not count. Requests
// that ask for keys do not start the timer.
type SendTimer struct {
	after time.Duration
	end   context.CancelCauseFunc
	once  sync.Once
	timer *time.Timer
}

type sendTimerKey struct{}

// WithSendTimer returns a context that ends so long after a request was sent.
func WithSendTimer(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	p := &SendTimer{after: after}
	ctx, p.end = context.WithCancelCause(context.WithValue(ctx, sendTimerKey{}, p))
	return ctx, func() {
		p.once.Do(func() {}) // from now on it cannot start
		if p.timer != nil {
			p.timer.Stop()
		}
		p.end(nil)
	}
}

// SendTimerOf returns the timer of a context, nil if it has none.
func SendTimerOf(ctx context.Context) *SendTimer {
	p, _ := ctx.Value(sendTimerKey{}).(*SendTimer)
	return p
}

// Start starts the timer unless it has started already. A nil timer does nothing.
func (p *SendTimer) Start() {
	if p == nil {
		return
	}
	p.once.Do(func() {
		p.timer = time.AfterFunc(p.after, func() { p.end(context.DeadlineExceeded) })
	})
}
