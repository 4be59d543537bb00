package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ReleaseWith releases the claim and carries out ops, in one transaction: both or neither. It
// takes one round trip. Use it to store the result of the work under a claim, or to pass the
// work on. Call it when the work has stopped, not before.
//
// Operations must not change keys under the client's prefix, except in the subtrees sched/ and
// queue/. The key is handed to the first caller in line, as [Claim.Release] does.
//
// ctx bounds the call, and so does the claim's own deadline. The error matches:
//
//   - ErrLost if the claim was lost. Nothing was carried out.
//   - ErrReleased if the claim was released before. Nothing was carried out.
//   - ErrUnknown if the transaction may have been carried out. While the claim lasts it
//     is retried in the background. The key is released in any case. If a reply was lost,
//     ReleaseWith learns the outcome only from a Put among ops.
//   - ErrPassthrough if there are operations and the client is without etcd. The claim is
//     still held.
//
// After any other error nothing was carried out and the claim is still held: call ReleaseWith
// again, or Release. Such errors are those of etcd, of invalid operations, and of a claim that
// cannot end in this way: it has a MinHold that is not over, or other handles (Reentrant). Use [Claim.Txn] and then Release for these.
func (cl *Claim) ReleaseWith(ctx context.Context, ops ...clientv3.Op) error {
	if cl.owner != nil {
		return cl.owner.ReleaseWith(ctx, ops...)
	}
	if cl.t == nil {
		if len(ops) > 0 {
			return callError("release", cl.key, fmt.Errorf("%w: operations cannot be carried out", ErrPassthrough))
		}
		return cl.Release(ctx)
	}
	if err := cl.t.s.c.checkOps(nil, ops); err != nil {
		return callError("release", cl.key, err)
	}
	if _, err := cl.checkSure(); err != nil {
		return cl.afterRelease("release", err)
	}
	if err := cl.t.endsWhole(); err != nil {
		return callError("release", cl.key, err)
	}
	e := &ending{call: "release", ops: ops, handsOver: true}
	return cl.afterRelease("release", cl.end(ctx, e))
}

// end ends the claim, unless that is refused.
func (cl *Claim) end(ctx context.Context, e *ending) error {
	err := cl.t.end(ctx, e)
	if err == nil || errors.Is(err, ErrUnknown) || errors.Is(err, ErrLost) {
		cl.released.Store(true)
	}
	return err
}

// endsWhole returns why one transaction cannot end the term, or nil.
func (t *term) endsWhole() error {
	if left := t.rests(); left > 0 {
		return fmt.Errorf("the key stays held for its MinHold, for %v yet", left.Round(time.Millisecond))
	}
	return nil
}

// endWithOps gives the key up and carries out the operations, in one request under the claim's
// guard. It keeps trying until that is settled, ctx ends or the lease does.
func (t *term) endWithOps(ctx context.Context, e *ending) error {
	t.s.c.local.Close(&t.local) // those that wait behind it in this client join the line
	ctx, cancel := t.s.hurried(ctx)
	defer cancel()
	step := t.leaving()
	if e.handsOver {
		t.learnLine(ctx, step)
	}
	r, to := e.request(t, step) // to is the attempt that r hands the key to
	sent := false               // a request that may have been carried out
	for try := 0; ; try++ {
		if try == 1 { // the first request ends before the claim does
			var cancel context.CancelFunc
			ctx, cancel = t.s.within(ctx)
			defer cancel()
			defer t.s.c.outage.Await(t.Token().Key)()
		}
		resp, err := t.s.c.store.Do(ctx, r)
		if err == nil && resp.Succeeded {
			t.clearLeft(resp, len(e.ops))
			t.finish(ErrReleased)
			return nil
		}
		if err == nil {
			// The reason is read only now: few are refused.
			var done bool
			switch resp, done, err = t.whyRefused(ctx, e, step, sent); {
			case err != nil && isPassing(err) && retry.PauseUnless(ctx, t.done, try):
				continue // to be refused again, if it was
			case err != nil:
			case !done && step.StillOwned((*pb.TxnResponse)(resp)):
				if record := step.Record((*pb.TxnResponse)(resp)); record != protocol.Kept {
					t.back()
					t.found(record)
					return t.lostEnding(e, sent)
				}
				// Only the line has changed.
				t.line, e.handsOver = step.JudgeLine((*pb.TxnResponse)(resp)).Line, e.handsOver && t.handsOverAgain(ctx, try)
				r, to = e.request(t, step)
				continue
			default:
				return t.foundEnded(e, resp, done, sent)
			}
		}
		switch {
		case to != "" && (errors.Is(err, rpctypes.ErrLeaseNotFound) || !errors.Is(err, ErrUnknown) && !txn.IsTransient(err)):
			e.handsOver = false // the waiter is gone, or its claim needs more of etcd, such as space
			r, to = e.request(t, step)
			continue
		case t.s.gone(ctx, err, true):
			return t.lostEnding(e, sent)
		case errors.Is(err, ErrUnknown):
			sent = true
		case !txn.IsTransient(err) && sent:
			return t.leaveUnsettled(e, r, err)
		case !txn.IsTransient(err): // by the caller's own operations: its to mend
			t.stay(ctx)
			return callError(e.call, t.Token().Key, err)
		}
		if retry.PauseUnless(ctx, t.done, try) {
			continue
		}
		if sent {
			return t.leaveUnsettled(e, r, txn.WithCause(ctx, err))
		}
		t.stay(ctx)
		if left, _ := t.s.left(); left <= 0 {
			t.s.enforce()
			return t.lost()
		}
		if t.ended() != nil { // with its session
			return t.lost()
		}
		return callError(e.call, t.Token().Key, t.s.c.outage.Explain(txn.WithCause(ctx, err)))
	}
}

// foundEnded ends a term whose claim is gone, as resp shows: by an earlier request of its own if
// done, or else lost.
func (t *term) foundEnded(e *ending, resp *clientv3.TxnResponse, done, sent bool) error {
	if done {
		t.clearAway()
		t.finish(ErrReleased)
		return nil
	}
	t.back()
	t.owned(resp)
	t.finish(ErrLost)
	return t.lostEnding(e, sent)
}

// whyRefused reads why the end of a term was refused, as readLine does. done means that an
// earlier request has carried it out.
func (t *term) whyRefused(ctx context.Context, e *ending, step protocol.Release, sent bool) (resp *clientv3.TxnResponse, done bool, err error) {
	r := step.Behind()
	lineOps, put, proof := len(r.In.Success), e.proof(), e.deletes
	if put != nil && proof == "" {
		proof = string(put.KeyBytes())
	}
	if sent && proof != "" {
		r.In.Success = append(r.In.Success, txn.Get([]byte(proof)))
	}
	resp, err = t.s.c.store.Send(ctx, r)
	if err != nil || step.StillThere((*pb.TxnResponse)(resp)) || !sent || proof == "" {
		return resp, false, txn.Failed(err)
	}
	kv := txn.First(resp, lineOps)
	if e.deletes != "" || kv == nil || string(kv.Value) != string(put.ValueBytes()) {
		return resp, e.deletes != "" && kv == nil, nil
	}
	// It may have been put by another. But if the claim was there just before, and is not
	// since, one transaction did both.
	own := t.s.c.store.Layout.Own(t.Key)
	then, err := t.s.c.store.Send(ctx, txn.Request{In: txn.Then(
		clientv3.OpGet(own, clientv3.WithRev(kv.ModRevision-1)), clientv3.OpGet(own, clientv3.WithRev(kv.ModRevision)))})
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return resp, false, nil
	case err != nil:
		return resp, false, txn.Failed(err)
	}
	before, after := txn.First(then, 0), txn.First(then, 1)
	held := before != nil && before.ModRevision == revision(t.Fence) && before.Lease == int64(t.s.id)
	return resp, held && (after == nil || after.ModRevision == kv.ModRevision), nil
}
