package txn

import (
	"context"
	"sync"
	"time"
)

// timeLimits are the timers of requests that take too long. They are used again, since almost none fires.
type timeLimits struct{ unused sync.Pool }

// timeLimit ends the context of a request that takes too long.
type timeLimit struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc // of the request under way
}

// begin ends a context after d, with ErrNoAnswer.
func (ls *timeLimits) begin(d time.Duration, cancel context.CancelCauseFunc) *timeLimit {
	l, ok := ls.unused.Get().(*timeLimit)
	if !ok {
		l = &timeLimit{cancel: cancel}
		l.timer = time.AfterFunc(d, l.passed)
		return l
	}
	l.cancel = cancel
	l.timer.Reset(d)
	return l
}

func (l *timeLimit) passed() { l.cancel(ErrNoAnswer) }

// end stops the limit. One that has begun to fire is not used again: it could end the next request.
func (l *timeLimit) end(ls *timeLimits) {
	if l.timer.Stop() {
		l.cancel = nil
		ls.unused.Put(l)
	}
}
