package etcdclaims

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ending is the transaction that gives a claim up together with operations of its holder.
type ending struct {
	call      string // as errors name it
	ops       []clientv3.Op
	concern   []string // what ops concern beside the key, nil if that may be anything
	deletes   string   // a key that is there until ops are carried out, or "": none is known
	handsOver bool     // the first in line gets the key; else it sees that the key is free

	outcome   string                  // as observers see it, or ""
	unsettled func() (settled func()) // called while the outcome is settled in the background, or nil
}

// end gives the term up with operations. A refusal leaves the term held, for its holder to
// try something else.
func (t *term) end(ctx context.Context, e *ending) error {
	t.s.mu.Lock()
	if t.refs > 1 && t.phase == phaseHeld { // together with the handles: no other caller may share it from now on
		refs := t.refs
		t.s.mu.Unlock()
		return callError(e.call, t.Token().Key, fmt.Errorf("the claim has %d handles (Reentrant)", refs))
	}
	err := t.beginLocked()
	if err == nil {
		t.outcome = e.outcome
	}
	t.s.mu.Unlock()
	if err != nil {
		return err
	}
	err = t.endWithOps(ctx, e)
	t.s.c.countRelease(t, err)
	return err
}

// leaveFor ends a held term whose end was refused, or came to nothing, for a holder
// that cannot try again. In the background the end is tried once more, unless e is nil, and
// then the key is given up without it.
func (t *term) leaveFor(e *ending, why error) error {
	t.s.mu.Lock()
	err := t.beginLocked()
	if err == nil {
		t.parting.Store(leavingForGood)
		if e != nil {
			t.outcome = e.outcome
		}
	}
	t.s.mu.Unlock()
	if err != nil {
		return err
	}
	var r txn.Request
	if e != nil {
		e.handsOver = false
		r, _ = e.request(t, t.leaving())
	}
	err = t.leaveUnsettled(e, r, why)
	t.s.c.countRelease(t, err)
	return err
}

// lostEnding is the error of an end that found its term lost. If a request
// may have been carried out, a successor may have gone on from what that wrote.
func (t *term) lostEnding(e *ending, sent bool) error {
	if !sent {
		return t.lost()
	}
	return callError(e.call, t.Token().Key, fmt.Errorf("%w: %v", ErrUnknown, t.lost())) //nolint:errorlint // it is one or the other
}

// request carries out the operations and gives the key up, if the term is the owner. If it
// hands the key over, to names the attempt that gets it.
func (e *ending) request(t *term, step protocol.Release) (r txn.Request, to string) {
	if e.handsOver {
		r, to = t.pass(step, t.line)
	} else {
		r = step.Free()
	}
	return step.With(r, txn.Then(e.ops...).Success, e.concern), to
}

// proof is what the operations put first, or nil. If the reply is lost, it shows whether they were
// carried out.
func (e *ending) proof() *clientv3.Op {
	for i := range e.ops {
		if e.ops[i].IsPut() {
			return &e.ops[i]
		}
	}
	return nil
}
