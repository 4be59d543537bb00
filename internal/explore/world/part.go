package world

import (
	"slices"

	"github.com/etcdclaims/claims/internal/protocol"
)

// part ends a claim whose key is deleted later; see term.Term.part.
func (w *World) part(i int) error {
	c := w.change(i)
	c.parted = &protocol.Ending{Release: c.term.leaving(w.call(i))}
	c.term = nil
	w.answered(i)
	return nil
}

// leavePart has the deletion sent.
func (w *World) leavePart(i int) error {
	c := w.change(i)
	end := c.parted
	c.parted, c.taking = nil, false
	return w.restStep(i, chore{claim: end.ID, rest: end, first: true}, protocol.EndEvent{Kind: protocol.EndBegins})
}

// mayCall reports whether a call may begin: its request takes a key over, or is sent after the answer to the deletion of the
// key. See txn.Batcher.Later.
func (c *client) mayCall(call Call) bool {
	if slices.ContainsFunc(c.chores, func(ch chore) bool { return ch.first }) {
		return false
	}
	return c.parted == nil || !call.Waits && !call.Meets && c.parted.EpochRev == c.epoch.Rev
}

// tookOver ends an attempt that was to take a key over. It reports whether it was refused: then it is made again, after the
// key is deleted.
func (w *World) tookOver(i int, how protocol.Answer) (again bool, err error) {
	c := w.change(i)
	if how == protocol.AnswerWon {
		c.parted, c.taking = nil, false
		return false, nil
	}
	err = w.leavePart(i)
	return how == protocol.AnswerHeld || how == protocol.AnswerBehind || how == protocol.AnswerAgain, err
}
