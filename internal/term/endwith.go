package term

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// EndsWhole returns why one transaction cannot end the term, or nil.
func (t *Term) EndsWhole() error {
	if left := t.rests(); left > 0 {
		return fmt.Errorf("the key stays held for its MinHold, for %v yet", left.Round(time.Millisecond))
	}
	return nil
}

// endWithOps gives the key up and carries out the operations, in one request under the claim's
// guard. It keeps trying until that is settled, ctx ends or the lease does.
func (t *Term) endWithOps(ctx context.Context, e *Ending) error {
	t.terms.Local.Close(&t.local) // those that wait behind it in this client join the line
	ctx, cancel := t.s.Hurried(ctx)
	defer cancel()
	step := t.leaving()
	if e.HandsOver {
		t.learnLine(ctx, step)
	}
	r, to := e.request(t, step) // to is the attempt that r hands the key to
	sent := false               // a request that may have been carried out
	for try := 0; ; try++ {
		if try == 1 { // the first request ends before the claim does
			var cancel context.CancelFunc
			ctx, cancel = t.s.Within(ctx)
			defer cancel()
			defer t.terms.Outage.Await(t.Token().Key)()
		}
		resp, err := t.terms.Store.Do(ctx, r)
		if err == nil && resp.Succeeded {
			t.clearLeft(resp, len(e.Ops))
			t.finish(claimerr.ErrReleased)
			return nil
		}
		if err == nil {
			// The reason is read only now: few are refused.
			var done bool
			switch resp, done, err = t.whyRefused(ctx, e, step, sent); {
			case err != nil && claimerr.IsPassing(err) && retry.PauseUnless(ctx, t.done, try):
				continue // to be refused again, if it was
			case err != nil:
			case !done && step.StillOwned((*pb.TxnResponse)(resp)):
				if record := step.Record((*pb.TxnResponse)(resp)); record != protocol.Kept {
					t.back()
					t.Found(record)
					return t.lostEnding(e, sent)
				}
				// Only the line has changed.
				t.line, e.HandsOver = step.JudgeLine((*pb.TxnResponse)(resp)).Line, e.HandsOver && t.handsOverAgain(ctx, try)
				r, to = e.request(t, step)
				continue
			default:
				return t.foundEnded(e, resp, done, sent)
			}
		}
		switch {
		case to != "" && (errors.Is(err, rpctypes.ErrLeaseNotFound) || !errors.Is(err, txn.ErrUnknown) && !txn.IsTransient(err)):
			e.HandsOver = false // the waiter is gone, or its claim needs more of etcd, such as space
			r, to = e.request(t, step)
			continue
		case t.s.Gone(ctx, err, true):
			return t.lostEnding(e, sent)
		case errors.Is(err, txn.ErrUnknown):
			sent = true
		case !txn.IsTransient(err) && sent:
			return t.leaveUnsettled(e, r, err)
		case !txn.IsTransient(err): // by the caller's own operations: its to mend
			t.stay(ctx)
			return errtext.Call(e.Call, t.Token().Key, err)
		}
		if retry.PauseUnless(ctx, t.done, try) {
			continue
		}
		if sent {
			return t.leaveUnsettled(e, r, txn.WithCause(ctx, err))
		}
		t.stay(ctx)
		if left, _ := t.s.Left(); left <= 0 {
			t.s.Enforce()
			return t.loss()
		}
		if t.Err() != nil { // with its session
			return t.loss()
		}
		return errtext.Call(e.Call, t.Token().Key, t.terms.Outage.Explain(txn.WithCause(ctx, err)))
	}
}

// foundEnded ends a term whose claim is gone, as resp shows: by an earlier request of its own if
// done, or else lost.
func (t *Term) foundEnded(e *Ending, resp *clientv3.TxnResponse, done, sent bool) error {
	if done {
		t.clearAway()
		t.finish(claimerr.ErrReleased)
		return nil
	}
	t.back()
	t.Owned(resp)
	t.finish(claimerr.ErrLost)
	return t.lostEnding(e, sent)
}

// whyRefused reads why the end of a term was refused, as readLine does. done means that an
// earlier request has carried it out.
func (t *Term) whyRefused(ctx context.Context, e *Ending, step protocol.Release, sent bool) (resp *clientv3.TxnResponse, done bool, err error) {
	r := step.Behind()
	lineOps, put, proof := len(r.In.Success), e.proof(), e.Deletes
	if put != nil && proof == "" {
		proof = string(put.KeyBytes())
	}
	if sent && proof != "" {
		r.In.Success = append(r.In.Success, txn.Get([]byte(proof)))
	}
	resp, err = t.terms.Store.Send(ctx, r)
	if err != nil || step.StillThere((*pb.TxnResponse)(resp)) || !sent || proof == "" {
		return resp, false, txn.Failed(err)
	}
	kv := txn.First(resp, lineOps)
	if e.Deletes != "" || kv == nil || string(kv.Value) != string(put.ValueBytes()) {
		return resp, e.Deletes != "" && kv == nil, nil
	}
	// It may have been put by another. But if the claim was there just before, and is not
	// since, one transaction did both.
	own := t.terms.Store.Layout.Own(t.Key)
	then, err := t.terms.Store.Send(ctx, txn.Request{In: txn.Then(
		clientv3.OpGet(own, clientv3.WithRev(kv.ModRevision-1)), clientv3.OpGet(own, clientv3.WithRev(kv.ModRevision)))})
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return resp, false, nil
	case err != nil:
		return resp, false, txn.Failed(err)
	}
	before, after := txn.First(then, 0), txn.First(then, 1)
	held := before != nil && before.ModRevision == keyspace.Revision(t.Fence) && before.Lease == int64(t.s.ID())
	return resp, held && (after == nil || after.ModRevision == kv.ModRevision), nil
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
	err = t.endWithOps(ctx, e)
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
	var r txn.Request
	if e != nil {
		e.HandsOver = false
		r, _ = e.request(t, t.leaving())
	}
	err = t.leaveUnsettled(e, r, why)
	t.terms.countRelease(err)
	return err
}

// lostEnding is the error of an end that found its term lost. If a request
// may have been carried out, a successor may have gone on from what that wrote.
func (t *Term) lostEnding(e *Ending, sent bool) error {
	if !sent {
		return t.loss()
	}
	return errtext.Call(e.Call, t.Token().Key, fmt.Errorf("%w: %v", txn.ErrUnknown, t.loss())) //nolint:errorlint // it is one or the other
}

// request carries out the operations and gives the key up, if the term is the owner. If it
// hands the key over, to names the attempt that gets it.
func (e *Ending) request(t *Term, step protocol.Release) (r txn.Request, to string) {
	if e.HandsOver {
		r, to = t.pass(step, t.line)
	} else {
		r = step.Free()
	}
	return step.With(r, txn.Then(e.Ops...).Success, e.Concern), to
}

// proof is what the operations put first, or nil. If the reply is lost, it shows whether they were
// carried out.
func (e *Ending) proof() *clientv3.Op {
	for i := range e.Ops {
		if e.Ops[i].IsPut() {
			return &e.Ops[i]
		}
	}
	return nil
}
