package group

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/clock"
	"go.uber.org/zap"
)

// deaf reports whether the member has waited for one of its targets for longer than a
// lease lasts, and no member is in line for it: its requests for partitions fail, although
// it renews its entry. Such a member must not stay the target of free partitions, nor take
// the place of other moves in the budget. wait is how long it is until the next check.
//
// A member that has just become the owner of a partition has left its line already, and may not
// know yet that it owns it. So the owner counts too.
func (m *Member) deaf(target []string) (deaf bool, wait time.Duration) {
	var late []string
	partitions := make(map[string]int)
	m.mu.Lock()
	limit := m.life + m.life/2
	wait = rest
	for partition, since := range m.wants {
		left := time.Until(since.Add(limit))
		switch {
		case target[partition] != m.cfg.Name:
			delete(m.wants, partition)
		case left > 0:
			wait = min(wait, left)
		default:
			late = append(late, m.keys.partition(partition))
			partitions[m.keys.partition(partition)] = partition
		}
	}
	m.mu.Unlock()
	if len(late) == 0 {
		return false, wait
	}
	ctx, cancel := context.WithTimeout(m.ctx, readTimeout)
	defer cancel()
	for line, err := range admin.Lines(ctx, m.claims, late) {
		if err != nil {
			return errors.Is(err, etcdclaims.ErrPermissionDenied), time.Second
		}
		m.mu.Lock()
		if _, waits := m.wants[partitions[line.Key]]; waits {
			m.wants[partitions[line.Key]] = clock.Mono()
		}
		m.mu.Unlock()
		delete(partitions, line.Key)
	}
	for key, partition := range partitions {
		info, err := m.claims.Lookup(ctx, key)
		if err != nil {
			return errors.Is(err, etcdclaims.ErrPermissionDenied), time.Second
		}
		m.mu.Lock()
		_, waits := m.wants[partition]
		mine := info.Held && info.Instance == m.claims.Instance()
		if waits && mine {
			m.wants[partition] = clock.Mono()
		}
		m.mu.Unlock()
		if waits && !mine {
			return true, rest
		}
	}
	return false, min(wait, limit)
}

// withdraw takes the member off the list for a while, which grows from time to time.
// The member keeps the partitions that it owns. It does not withdraw if it has lost the claim of
// its entry meanwhile: its places in line may have been lost with that claim.
func (m *Member) withdraw(claim *etcdclaims.Claim, why string) {
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
	m.log.Error("the member is off the list", zap.String("reason", why), zap.Duration("for", pause))
	m.stayAway(claim, entry)
}

// stayAway takes an entry of the member off the list, until the member joins again after its pause. The
// member keeps the partitions that it owns.
func (m *Member) stayAway(claim *etcdclaims.Claim, entry string) {
	m.leaveLines(nil)
	m.wg.Go(func() { m.erase(claim, false, entry) })
}

// forgive makes the time count anew that the member has waited for partitions. The mutex is
// held.
func (m *Member) forgive() {
	for partition := range m.wants {
		m.wants[partition] = clock.Mono()
	}
}
