package term

import (
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
)

// limit ends a term by time, however often it is renewed: first its context, and then the term itself. Time for which
// the machine slept counts. The timer does not count it, and is only how the limit is noticed soon.
type limit struct {
	why   claimerr.Loss
	soft  time.Duration // when the context ends
	hard  time.Duration // when the term does
	from  clock.Reading // what both count from
	timer *time.Timer
}

// limitLocked begins the limits that the term was given.
func (t *Term) limitLocked() {
	drain := t.s.Grant().Drain()
	add := func(reason claimerr.Reason, soft, hard time.Duration) {
		l := &limit{why: claimerr.Loss{Reason: reason}, soft: soft, hard: hard, from: t.granted}
		l.timer = time.AfterFunc(max(soft, 0), func() { t.reach(l) })
		t.limits = append(t.limits, l)
	}
	if d := t.MaxHold; d > 0 {
		add(claimerr.MaxHold, d-drain, d)
	}
	if d := t.Progress; d > 0 {
		add(claimerr.NoProgress, d, d+drain)
	}
}

// past returns how much of the limit's time has passed.
func (l *limit) past(now clock.Reading) time.Duration {
	past, _ := now.Since(l.from)
	return past
}

// arm sets the timer to what comes next.
func (l *limit) arm(now clock.Reading) {
	next, past := l.soft, l.past(now)
	if past >= l.soft {
		next = l.hard
	}
	l.timer.Reset(max(next-past, 0))
}

// reach ends the context of the term, or the term, if its time has come. A handler may still run, so the key of the
// term is re-homed, not freed. If its holder is giving the term up, and that comes to nothing, it ends then.
func (t *Term) reach(l *limit) {
	now := t.terms.Clock.Now()
	t.mu.Lock()
	past, over := l.past(now), false
	if past >= l.soft {
		t.stopLocked(l.why.Of(t.Token()))
	}
	if past >= l.hard {
		over = t.beginLossLocked() == nil
	} else if t.life.phase != phaseEnded {
		l.arm(now)
	}
	t.mu.Unlock()
	if over {
		t.Zombie(l.why)
	}
}

// enforceLimits does what timers should have done: the process was stopped, or the machine slept.
func (t *Term) enforceLimits() {
	for _, l := range t.limits {
		t.reach(l)
	}
}

// armLocked sets the timers anew: they have not counted the time for which the machine slept, or
// in which the term was being given up.
func (t *Term) armLocked(now clock.Reading) {
	for _, l := range t.limits {
		l.arm(now)
	}
}

// Woke notes that the machine slept.
func (t *Term) Woke(now clock.Reading) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life.phase == phaseHeld {
		t.armLocked(now)
	}
}

// Beat notes that the handler makes progress. It returns why the context of the term has ended, if
// it has: progress comes too late then.
func (t *Term) Beat() error {
	t.enforceLimits()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.work.cause != nil {
		return t.work.cause
	}
	for _, l := range t.limits {
		if l.why.Reason == claimerr.NoProgress {
			l.from = t.terms.Clock.Now()
			l.arm(l.from)
		}
	}
	return nil
}
