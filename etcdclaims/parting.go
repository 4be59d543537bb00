package etcdclaims

import "context"

// What gives a term up can come to nothing: the end of work, Yield, Upgrade and Downgrade. The
// term is held again then, unless a call that releases it came meanwhile, and left it to them.

// beginOrWant is beginForGood for a call that releases the term in any case.
func (t *term) beginOrWant() error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.beginOrWantLocked()
}

func (t *term) beginOrWantLocked() error {
	t.wanted = t.phase == phaseEnding
	err := t.beginLocked()
	if err == nil {
		t.parting.Store(leavingForGood)
	}
	return err
}

// stay makes a term held again whose giving up was refused or came to nothing. If it was to be
// released meanwhile, stay does that and reports false.
func (t *term) stay(ctx context.Context) (held bool) {
	t.s.mu.Lock()
	wanted := t.wanted && t.phase == phaseEnding
	if wanted {
		t.outcome = ""
		t.parting.Store(leavingForGood)
	} else {
		t.backLocked()
	}
	t.s.mu.Unlock()
	if wanted {
		_ = t.releaseBegun(ctx)
	} else {
		t.s.c.wakeSharing(t.isOn)
	}
	return !wanted
}

// back makes a term held again that is found to be lost.
func (t *term) back() {
	t.s.mu.Lock()
	t.backLocked()
	t.s.mu.Unlock()
	t.s.c.wakeSharing(t.isOn) // they could not share it meanwhile
}

func (t *term) backLocked() {
	if t.phase != phaseEnding {
		return
	}
	t.phase, t.outcome = phaseHeld, ""
	t.parting.CompareAndSwap(leavingMaybe, staying)
	if t.overdue {
		t.limit.Reset(0)
	}
}
