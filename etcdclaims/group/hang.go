package group

import (
	"errors"

	"github.com/etcdclaims/claims/etcdclaims"
	"go.uber.org/zap"
)

// hangs counts a handler that has lost its claim because it made no progress, until it returns.
// step then takes the member off the list, so that the partition gets another owner.
func (m *Member) hangs(r *run) {
	lost, _ := errors.AsType[*etcdclaims.LostError](r.claim.Err())
	if lost == nil || lost.Reason != etcdclaims.ReasonNoProgress {
		return
	}
	m.mu.Lock()
	counts := !r.hangs && !r.returned
	if counts {
		r.hangs = true
		m.hanging++
		if m.hanging == 1 {
			m.moving = make(chan struct{})
		}
	}
	m.mu.Unlock()
	if counts {
		m.log.Error("partition handler makes no progress", zap.Int("partition", r.partition),
			zap.String("key", r.claim.Key()), zap.Int64("fence", r.claim.Fence()))
		m.rouse()
	}
}

// returns ends what hangs has begun.
func (m *Member) returns(r *run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.returned = true
	if !r.hangs {
		return
	}
	m.hanging--
	if m.hanging == 0 {
		close(m.moving)
	}
}

// untilMoving waits until no handler hangs. It returns false if the member leaves first.
func (m *Member) untilMoving() bool {
	m.mu.Lock()
	moving, hanging := m.moving, m.hanging
	m.mu.Unlock()
	if hanging == 0 {
		return true
	}
	select {
	case <-moving:
		return true
	case <-m.ctx.Done():
		return false
	}
}
