package etcdclaims

import "context"

// What gives a term up can come to nothing: ReleaseWith. The term is held again then, unless a
// call that releases it came meanwhile, and left it to them,
// or its handler has outlived its drain.

// beginOrWant is begin for a call that releases the term in any case: it will not be held again,
// whatever the result of the request.
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

// beginZombie is begin for a term whose handler has outlived its drain. If the term is being given
// up in another way, and that comes to nothing, it is lost as that of any zombie.
func (t *term) beginZombie(lost taking) error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.phase == phaseEnding {
		t.zombie = &lost
	}
	return t.beginLossLocked()
}

// beginLoss is begin for a term that is lost. Nobody releases it, so Check must not report a
// release while the loss is being recorded.
func (t *term) beginLoss() error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.beginLossLocked()
}

func (t *term) beginLossLocked() error {
	err := t.beginLocked()
	if err == nil {
		t.parting.Store(staying)
	}
	return err
}

// stay makes a term held again whose giving up was refused or came to nothing. If it was to be
// released or lost meanwhile, stay does that and reports false.
func (t *term) stay(ctx context.Context) (held bool) {
	t.s.mu.Lock()
	lost, wanted := t.zombie, t.wanted
	if t.phase != phaseEnding {
		lost, wanted = nil, false
	}
	if held = lost == nil && !wanted; held {
		t.backLocked()
	} else {
		t.outcome = ""
		t.parting.Store(leavingForGood)
	}
	t.s.mu.Unlock()
	switch {
	case held:
		t.s.c.wakeSharing(t.isOn) // they could not share it meanwhile
	case lost != nil:
		t.s.c.zombie(t, lost.reason, lost.err)
	default:
		_ = t.releaseBegun(ctx)
	}
	return held
}

// back makes a term held again that is found to be lost.
func (t *term) back() {
	t.s.mu.Lock()
	t.backLocked()
	t.s.mu.Unlock()
	t.s.c.wakeSharing(t.isOn)
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
