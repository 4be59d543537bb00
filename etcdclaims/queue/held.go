package queue

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/retry"
)

// Delivery returns this Queue's delivery of an item, and whether it has one, as far as this
// process knows. It sends no request. Adopted deliveries are left out until Heartbeat has
// moved them to this process. See Delivery.Check and Delivery.Token.
func (q *Queue) Delivery(id string) (*Delivery, bool) {
	q.sessions.mu.Lock()
	defer q.sessions.mu.Unlock()
	for s := range q.sessions.all {
		if l, ok := s.leaseOf(id).(*Delivery); ok {
			return l, true
		}
	}
	return nil, false
}

// Sweep recovers the items of dead workers now, and returns how many it made visible or
// put among the dead letters. Processes that claim do that by themselves, so Sweep is for
// programs that do not claim, and for operators. It recovers items whose session has
// ended in etcd. It does not end a session. Several processes may call Sweep at the same
// time.
//
// After an error some items have been recovered. While etcd does not answer, Sweep fails
// within half a minute, even if ctx lasts longer. Errors: ErrConfig, and those of
// etcdclaims.Client.TryAcquire.
func (q *Queue) Sweep(ctx context.Context) (n int, err error) {
	if err := q.closed(); err != nil {
		return 0, q.fail("sweep", err)
	}
	for try, begun := 0, clock.Mono(); ; try++ {
		s, err := q.sessions.live(ctx)
		if err != nil {
			return n, q.fail("sweep", err)
		}
		_, some, err := q.recoverDead(ctx, s)
		n += some
		if some > 0 {
			begun = clock.Mono()
		}
		if !tryAgain(ctx, err, begun, try) {
			return n, q.fail("sweep", err)
		}
	}
}

// tryAgain reports whether to repeat a request that failed, of those that do no harm when they
// are carried out twice, and waits before. It gives up patience after the last success.
func tryAgain(ctx context.Context, err error, success time.Time, try int) bool {
	return err != nil && (errors.Is(err, etcdclaims.ErrLost) || passing(err)) && time.Since(success) < patience && retry.Pause(ctx, try)
}
