package group

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"go.uber.org/zap"
)

// deaf reports whether the member has waited for one of its targets for longer than a
// lease lasts, and no member is in line for it: its requests for slots fail, although
// it renews its entry. Such a member must not stay the target of free slots, nor take
// the place of other moves in the budget. wait is how long it is until the next check.
//
// A member that has just become the owner of a slot has left its line already, and may not
// know yet that it owns it. So the owner counts too.
func (m *Member) deaf(target []string) (deaf bool, wait time.Duration) {
	var late []string
	slots := make(map[string]int)
	m.mu.Lock()
	limit := m.life + m.life/2
	wait = rest
	for slot, since := range m.wants {
		left := time.Until(since.Add(limit))
		switch {
		case target[slot] != m.cfg.Name:
			delete(m.wants, slot)
		case left > 0:
			wait = min(wait, left)
		default:
			late = append(late, m.keys.slot(slot))
			slots[m.keys.slot(slot)] = slot
		}
	}
	m.mu.Unlock()
	if len(late) == 0 {
		return false, wait
	}
	ctx, cancel := context.WithTimeout(m.ctx, readTimeout)
	defer cancel()
	for line, err := range m.claims.Lines(ctx, late) {
		if err != nil {
			return errors.Is(err, etcdclaims.ErrPermissionDenied), time.Second
		}
		m.mu.Lock()
		if _, waits := m.wants[slots[line.Key]]; waits {
			m.wants[slots[line.Key]] = clock.Mono()
		}
		m.mu.Unlock()
		delete(slots, line.Key)
	}
	for key, slot := range slots {
		info, err := m.claims.Lookup(ctx, key)
		if err != nil {
			return errors.Is(err, etcdclaims.ErrPermissionDenied), time.Second
		}
		m.mu.Lock()
		_, waits := m.wants[slot]
		mine := info.Held && info.Instance == m.claims.Instance()
		if waits && mine {
			m.wants[slot] = clock.Mono()
		}
		m.mu.Unlock()
		if waits && !mine {
			return true, rest
		}
	}
	return false, min(wait, limit)
}

// withdraw takes a deaf member off the list for a while, which grows from time to time.
// The member keeps the slots that it owns. It does not withdraw if it has lost the claim of
// its entry meanwhile: its places in line may have been lost with that claim.
func (m *Member) withdraw(claim *etcdclaims.Claim) {
	m.mu.Lock()
	if m.claim != claim || claim.Err() != nil {
		m.forgive()
		m.mu.Unlock()
		m.rouse()
		return
	}
	entry := m.entry
	m.pause = m.life << min(m.fails, 4)
	m.fails++
	pause := m.pause
	clear(m.wants)
	m.mu.Unlock()
	m.log.Error("slots cannot be claimed; the member is off the list", zap.Duration("for", pause))
	m.leaveLines(nil)
	m.wg.Go(func() { m.erase(claim, false, entry) })
}

// forgive makes the time count anew that the member has waited for slots. The mutex is
// held.
func (m *Member) forgive() {
	for slot := range m.wants {
		m.wants[slot] = clock.Mono()
	}
}
