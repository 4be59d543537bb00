package queue

import (
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"go.uber.org/zap"
)

// idle is the registration of this process as one that waits for items, below
// index/idle/. The claimer's goroutine alone uses it.
type idle struct {
	q        *store
	arrivals *arrivals
	s        *session  // registered under it, or nil
	last     time.Time // when it last waited
}

// idleLinger is how long a process stays registered when no caller waits any more, so
// that a short job costs no registration.
const idleLinger = time.Second

// enter registers the process. A request of unknown outcome is repeated the next time:
// a registration that is not true costs others one step.
func (i *idle) enter(s *session) {
	i.last = clock.Mono()
	if i.s != nil && !i.s.ended() {
		return
	}
	i.arrivals.join(s.id)
	_, again, err := s.commit(i.q.ctx, s.generation().Register())
	switch {
	case err != nil:
		i.q.log.Debug("waiting process not registered", zap.Error(err))
	case !again:
		i.s = s
	}
}

// lapse returns how long it is until the process no longer counts as a waiting one, and
// 0 if it does not.
func (i *idle) lapse() time.Duration {
	if i.s == nil {
		return 0
	}
	return max(idleLinger-time.Since(i.last), time.Millisecond)
}

// leave removes the registration, if no caller has waited for a while.
func (i *idle) leave() {
	if i.s == nil || time.Since(i.last) < idleLinger {
		return
	}
	s := i.s
	i.s = nil
	if _, _, err := s.commit(i.q.ctx, s.generation().Unregister()); err != nil {
		i.q.log.Debug("waiting process not unregistered", zap.Error(err))
	}
}
