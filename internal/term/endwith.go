package term

import (
	"context"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// EndsWhole returns why one transaction cannot end the term, or nil.
func (t *Term) EndsWhole() error {
	if left := t.restLeft(); left > 0 {
		return fmt.Errorf("the key stays held for its MinHold, for %v yet", left.Round(time.Millisecond))
	}
	return nil
}

// Ending is the transaction that gives a claim up together with operations of its holder.
type Ending struct {
	Call      string // as errors name it
	Ops       []clientv3.Op
	Concern   []string // what Ops concern beside the key, nil if that may be anything
	Deletes   string   // a key that is there until Ops are carried out, or "": none is known
	HandsOver bool     // the first in line gets the key; else it sees that the key is free

	Outcome   string                  // as observers see it, or ""
	Unsettled func() (settled func()) // called while the outcome is settled in the background, or nil
}

// exit is the exit of the term with the operations.
func (e *Ending) exit(t *Term) exit {
	x := t.release()
	x.call, x.unsettled, x.Frees = e.Call, e.Unsettled, !e.HandsOver
	x.Ops = &protocol.EndOps{Ops: txn.Then(e.Ops...).Success, Concern: e.Concern, Deletes: e.Deletes}
	return x
}

// End gives the term up with operations. A refusal leaves the term held, for its holder to
// try something else.
func (t *Term) End(ctx context.Context, e *Ending) error {
	t.mu.Lock()
	if t.life.refs > 1 && t.life.phase == phaseHeld { // together with the handles: no other caller may share it from now on
		refs := t.life.refs
		t.mu.Unlock()
		return errtext.Call(e.Call, t.Token().Key, fmt.Errorf("the claim has %d handles (Reentrant)", refs))
	}
	err := t.beginLocked()
	if err == nil {
		t.life.outcome = e.Outcome
	}
	t.mu.Unlock()
	if err != nil {
		return err
	}
	x := e.exit(t)
	err = x.run(ctx)
	t.terms.countRelease(err)
	return err
}

// LeaveFor ends a held term whose end was refused, or came to nothing, for a holder
// that cannot try again. In the background the end is tried once more, unless e is nil, and
// then the key is given up without it.
func (t *Term) LeaveFor(e *Ending, why error) error {
	t.mu.Lock()
	err := t.beginLocked()
	if err == nil {
		t.parting.Store(leavingForGood)
		if e != nil {
			t.life.outcome = e.Outcome
		}
	}
	t.mu.Unlock()
	if err != nil {
		return err
	}
	x := t.release()
	if e != nil {
		x = e.exit(t)
	}
	x.err = why
	err = x.end(context.Background(), x.Step(protocol.EndEvent{Kind: protocol.EndLeft}))
	t.terms.countRelease(err)
	return err
}
