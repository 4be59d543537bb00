package queue

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/retry"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// The keeper recovers the items of a dead session at once. The other processes that
// claim do so a moment later if it has not: the keeper may have died with that session,
// or before it, and its claim may last longer than the session. A recovery removes the
// session's entry in worker/, which all of them see, so one that the keeper has done
// costs the others no request.
const (
	recoverAfter  = 50 * time.Millisecond  // which the keeper has for it
	recoverSpread = 250 * time.Millisecond // among the others, at random
	recoverAgain  = time.Second            // after an error
	recoverTries  = 10                     // then it is left to the keeper
)

// deaths are the sessions whose end a process has seen. It belongs to one goroutine.
type deaths struct {
	dead  map[string]*death // by session, those with an entry in worker/
	early map[string]bool   // whose entry went first, as when a session is closed
	look  time.Time         // when to look for those that ended before the watch; zero: done
}

// death is the end of a session.
type death struct {
	due   time.Time // when this process recovers its items
	tries int
}

// ended notes that a session has ended.
func (d *deaths) ended(id string) {
	if d.early[id] {
		delete(d.early, id)
		return
	}
	d.dead[id] = &death{due: myTurn()}
}

// settled notes that the entry of a session is gone: it has no items.
func (d *deaths) settled(id string) {
	if d.dead[id] != nil {
		delete(d.dead, id)
		return
	}
	if len(d.early) >= 1000 { // their ends were not reported
		clear(d.early)
	}
	d.early[id] = true
}

// myTurn returns when this process recovers what ended now.
func myTurn() time.Time { return clock.Mono().Add(recoverAfter + rand.N(recoverSpread)) }

// next returns how long it is until something is due.
func (d *deaths) next() time.Duration {
	next := clock.Mono().Add(time.Hour)
	if !d.look.IsZero() {
		next = d.look
	}
	for _, one := range d.dead {
		if one.due.Before(next) {
			next = one.due
		}
	}
	return max(time.Until(next), 0)
}

// watchDeaths is a goroutine of each process that claims: it follows the sessions of the
// queue, and wakes the keeper when one ends. If the keeper does not recover that
// session's items, it does. A watch is a hint: the keeper reads without it, too.
func (k *keeper) watchDeaths() {
	retry.Forever(k.ctx, k.watchDeathsOnce)
}

// watchDeathsOnce follows the sessions until the watch ends, and reports whether
// anything came of it.
func (k *keeper) watchDeathsOnce() (heard bool) {
	removals := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithFilterPut()}
	claims, stop := k.openWatch(k.ctx, k.keys.Own(""), removals...)
	defer stop()
	entries, stop := k.openWatch(k.ctx, k.keys.Workers(), removals...)
	defer stop()
	d := deaths{dead: map[string]*death{}, early: map[string]bool{}, look: myTurn()}
	k.wakeKeeper()
	for {
		var resp clientv3.WatchResponse
		var open bool
		select {
		case resp, open = <-claims:
			for _, ev := range resp.Events {
				d.ended(strings.TrimPrefix(string(ev.Kv.Key), k.keys.Own("")))
				k.wakeKeeper()
			}
		case resp, open = <-entries:
			for _, ev := range resp.Events {
				d.settled(strings.TrimPrefix(string(ev.Kv.Key), k.keys.Workers()))
			}
		case <-time.After(d.next()):
			k.recoverDue(k.ctx, &d)
			continue
		}
		if !open || resp.Err() != nil {
			return heard
		}
		heard = true
	}
}

// wakeKeeper makes the keeper look for dead sessions, if this process is the keeper.
func (k *keeper) wakeKeeper() {
	select {
	case k.died <- struct{}{}:
	default:
	}
}

// recoverDue recovers the items of the sessions that are due.
func (k *keeper) recoverDue(ctx context.Context, d *deaths) {
	now := clock.Mono()
	if !d.look.IsZero() && !now.Before(d.look) {
		d.look = time.Time{}
		if _, _, err := k.recoverEnded(ctx, 0); err != nil && ctx.Err() == nil {
			k.log.Debug("dead queue sessions not looked for", zap.Error(err))
			d.look = now.Add(recoverAgain)
		}
	}
	for id, one := range d.dead {
		if now.Before(one.due) {
			continue
		}
		s, err := k.sessions.live(ctx)
		if err == nil {
			_, err = k.recoverSession(ctx, s, id)
		}
		if one.tries++; err == nil || one.tries >= recoverTries {
			delete(d.dead, id)
			continue
		}
		one.due = now.Add(recoverAgain)
	}
}
