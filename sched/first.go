package sched

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/lanes"
	"github.com/etcdclaims/claims/internal/tick"
)

// startSome begins ticks, those of the lowest Priority first, and then the oldest. It returns after how long to call it
// again.
func (b *starter) startSome(ctx context.Context) time.Duration {
	if !b.cfg.Spread && !b.owning.Load() {
		return mostWait
	}
	now := clock.Mono()
	b.lanes.Wake(now)
	if now.Sub(b.unparked) >= mostWait {
		b.lanes.Unpark()
		b.unparked = now
	}
	most := attemptsAtOnce
	if b.cfg.Spread {
		most = spreadAtOnce
	}
	for b.tries < most && (b.cfg.Limit == 0 || b.busy < b.cfg.Limit) {
		l := b.lanes.Next()
		if l == nil {
			break
		}
		b.lanes.Lift(l)
		waited := l.Needs
		l.Needs = lanes.Slot{}
		known := b.startFirst(ctx, l, now)
		if waited != l.Needs {
			b.lanes.Free(waited.Limit) // another one may be free
		}
		if !known {
			return 0
		}
	}
	return b.lanes.Soonest(now, mostWait)
}

// startFirst begins the first tick of a lane that can begin, or lets the lane wait. It returns false if that is to be
// tried again with what the view has learnt since.
func (b *starter) startFirst(ctx context.Context, l *lanes.Lane, now time.Time) (known bool) {
	j, w := b.begins(l)
	if w == nil {
		if l.At.After(now) {
			b.lanes.Place(l) // its first tick waits for its next attempt
		} else {
			b.lanes.Park(l) // the owner drops late ticks; another process may have the job
		}
		return true
	}
	slots, numbers, full := b.limits.slots(j, l)
	if full != (lanes.Slot{}) {
		b.lanes.Wait(l, full)
		return true
	}
	before := b.excluding(w.Ready)
	switch {
	case len(before) > 0:
		l.Ahead = before
	case !w.Parallel && (b.view.HasNews(b.feed, b.keys.ReadyOf(w.Job)) ||
		tick.IsBackfill(w.ID) && b.view.HasNews(b.feed, b.keys.Backfills(w.Job))):
		b.lanes.Place(l)
		return false // a run may have just ended whose tick waits again
	}
	r := b.newRun(l.Claim, w.Ready)
	r.Admitted, r.Slots = w.AdmittedAt(), numbers
	b.launch(ctx, launch{
		beginning: &queued{starter: b, waiter: *w, ahead: l.Ahead, slots: slots},
		lane:      l, run: &active{job: j, run: r}, waits: w, slots: slots,
	})
	return true
}

// begins returns the first tick of a lane that can begin, or nil.
func (b *starter) begins(l *lanes.Lane) (Job, *waiter) {
	now := b.now()
	for _, w := range l.Line.Ticks {
		j, ok := b.catalog.job(w.Job)
		if !ok || !j.runsOn(b.cfg.Labels) {
			return Job{}, nil
		}
		if j.tooLate(w.Ready, now) {
			continue
		}
		if w.Begins.After(clock.Mono()) {
			l.At, l.Rests = w.Begins, true
			return j, nil
		}
		return j, w
	}
	return Job{}, nil
}
