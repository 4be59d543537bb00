package term

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/txn"
)

// What gives a term up can come to nothing: an end with operations. The term is held again then, unless a
// call that releases it came meanwhile, and left it to them,
// or its handler has outlived its drain.

type phase int

const (
	phaseHeld   phase = iota
	phaseEnding       // its holder is giving it up: only the end of its session may make it lost
	phaseEnded
)

// How far a term is given up, as Check sees it without a lock: from before the
// first request is sent that may give the key away.
const (
	staying      int32 = iota
	leavingMaybe       // an end that can be refused is under way
	leavingForGood
)

// stage is how far a term has come.
type stage struct {
	phase   phase
	refs    int            // handles, for Reentrant
	begun   bool           // its first caller has it, or will have it at once: others may share it
	wanted  bool           // it is to be released if that comes to nothing
	zombie  *claimerr.Loss // or to be lost like this, since its handler has outlived its drain
	outcome string         // of its end, as observers see it
	endedAt time.Duration  // of the client's uptime
	err     error          // why it ended; it does not change any more
}

// endLocked ends the term with the error for good; the mutex is held.
func (t *Term) endLocked(err error) bool {
	if t.life.phase == phaseEnded {
		return false
	}
	t.life.phase = phaseEnded
	for _, l := range t.limits {
		l.timer.Stop()
	}
	t.life.endedAt = t.terms.Uptime()
	t.terms.Keys.Remove(t, t.Key)
	t.terms.Local.Close(&t.local)
	t.life.err = err
	t.err.Store(&t.life.err)
	t.s.Remove(t) // the session may look empty from now on
	t.stopLocked(err)
	close(t.done)
	return true
}

// loseLocked ends a held term as lost. One whose holder is giving it up is not
// lost by that, except with its whole session.
func (t *Term) loseLocked(why claimerr.Loss) bool {
	if !t.endLocked(why.Of(t.Token())) {
		return false
	}
	t.terms.Losses[why.Reason].Add(1)
	return true
}

// Lose ends the term with its session.
func (t *Term) Lose(why claimerr.Loss) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.loseLocked(why)
}

// Lost reports that the term was lost.
func (t *Term) Lost(why claimerr.Loss) { t.terms.Observer.TermLost(t, why) }

// TakeAway ends a term that was found to be no longer this client's.
func (t *Term) TakeAway(why claimerr.Loss) bool {
	t.mu.Lock()
	lost := t.life.phase == phaseHeld && t.loseLocked(why)
	t.mu.Unlock()
	if !lost {
		return false
	}
	t.Lost(why)
	t.clearAway()
	t.s.RetireIdle()
	return true
}

// begin starts to give the term up: from here on only its holder, or the end of
// its session, ends it.
func (t *Term) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.beginLocked()
}

func (t *Term) beginLocked() error {
	switch t.life.phase {
	case phaseEnded:
		return t.Err()
	case phaseEnding:
		return claimerr.ErrReleased
	}
	t.life.phase = phaseEnding
	t.parting.Store(leavingMaybe)
	return nil
}

// finish ends a term that was given up.
func (t *Term) finish(err error) {
	t.mu.Lock()
	ended := t.endLocked(err)
	t.mu.Unlock()
	if ended {
		t.terms.Observer.TermEnded(t)
		t.s.RetireIdle()
	}
}

// Ended returns how long the claim was held, and how its end is named to observers.
func (t *Term) Ended() (after time.Duration, outcome string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.life.endedAt - t.Holding.Since, t.life.outcome
}

// beginOrWant is begin for a call that releases the term in any case: it will not be held again,
// whatever the result of the request.
func (t *Term) beginOrWant() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.beginOrWantLocked()
}

func (t *Term) beginOrWantLocked() error {
	t.life.wanted = t.life.phase == phaseEnding
	err := t.beginLocked()
	if err == nil {
		t.parting.Store(leavingForGood)
	}
	return err
}

// BeginZombie begins the loss of a term whose handler has outlived its drain, and reports whether the caller goes on
// with Zombie. If the term is being given up in another way, and that comes to nothing, it is lost as that of any zombie.
func (t *Term) BeginZombie(why claimerr.Loss) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life.phase == phaseEnding {
		t.life.zombie = &why
	}
	return t.beginLossLocked() == nil
}

// beginLoss is begin for a term that is lost. Nobody releases it, so Check must not report a
// release while the loss is being recorded.
func (t *Term) beginLoss() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.beginLossLocked()
}

func (t *Term) beginLossLocked() error {
	err := t.beginLocked()
	if err == nil {
		t.parting.Store(staying)
	}
	return err
}

// stay makes a term held again whose giving up was refused or came to nothing. If it was to be
// released or lost meanwhile, stay does that.
func (t *Term) stay(ctx context.Context) {
	t.mu.Lock()
	lost, wanted := t.life.zombie, t.life.wanted
	if t.life.phase != phaseEnding {
		lost, wanted = nil, false
	}
	stays := lost == nil && !wanted
	if stays {
		t.backLocked()
		if t.life.phase == phaseHeld {
			t.armLocked(t.terms.Clock.Now()) // a limit that was reached meanwhile counts now
		}
	} else {
		t.life.outcome = ""
		t.parting.Store(leavingForGood)
	}
	t.mu.Unlock()
	switch {
	case stays:
		t.terms.Waiters.Share(t.isOn) // they could not share it meanwhile
	case lost != nil:
		t.Zombie(*lost)
	default:
		_ = t.releaseBegun(ctx)
	}
}

// back makes a term held again that is found to be lost.
func (t *Term) back() {
	t.mu.Lock()
	t.backLocked()
	t.mu.Unlock()
	t.terms.Waiters.Share(t.isOn)
}

func (t *Term) backLocked() {
	if t.life.phase != phaseEnding {
		return
	}
	t.life.phase, t.life.outcome = phaseHeld, ""
	t.parting.CompareAndSwap(leavingMaybe, staying)
}

// GiveUp ends a term that its caller never got, and undoes the attempt
// in the background, unless others share it by now.
func (t *Term) GiveUp(undo func()) {
	t.mu.Lock()
	if t.life.refs > 1 && t.life.phase != phaseEnded {
		t.life.refs--
		t.mu.Unlock()
		return
	}
	_ = t.beginLocked()
	t.mu.Unlock()
	undo()
	t.finish(claimerr.ErrReleased)
}

func isUnknown(err error) bool { return errors.Is(err, txn.ErrUnknown) }

// IsHeld reports whether the term is held, and not being given up.
func (t *Term) IsHeld() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.life.phase == phaseHeld
}
