package term

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// handOffLocal hands the key to the first local waiter, if there is one and no other
// caller came before it. Otherwise the caller releases the key, with the line as far as
// it is known by then.
func (t *Term) handOffLocal(ctx context.Context) (passed bool, err error) {
	ts := t.terms
	f := t.nextLocal()
	if f == nil {
		return false, nil
	}
	step := t.leaving()
	t.learnLine(ctx, step)
	ts.Keys.Register(f.Attempt.Claim().ID) // whether or not its caller waits for it
	defer ts.Keys.Unregister(f.Attempt.Claim().ID)
	sent := false // a request that may have been carried out
	for try := 0; ; try++ {
		if len(t.line.Next) > 0 && !sent && !ts.Local.CameFirst(f, t.line.Next[0].Rev) {
			ts.Local.PutBack(&t.local, f)
			return false, nil
		}
		there := ts.Local.Waiting(&t.local)
		resp, err := ts.Store.Do(ctx, step.Within(t.line, f.Attempt.Claim().Value, int64(t.s.ID())))
		switch {
		case err == nil && resp.Succeeded:
			ts.Local.RecordArrival(there, resp.Header.Revision)
			t.succeed(f, resp.Header.Revision)
			return true, nil
		case err == nil && f.Attempt.Claim().Found(txn.First(resp, 0)) > 0:
			t.succeed(f, f.Attempt.Claim().Found(txn.First(resp, 0))) // by a request whose reply was lost
			return true, nil
		case err == nil && step.StillOwned((*pb.TxnResponse)(resp)):
			t.line = step.JudgeLine((*pb.TxnResponse)(resp)).Line
			continue
		case err == nil, !sent && !errors.Is(err, txn.ErrUnknown) && !txn.IsTransient(err):
			t.refuseLocal(f)
			return false, nil
		case errors.Is(err, txn.ErrUnknown):
			sent = true
		}
		if try == 0 {
			var cancel context.CancelFunc
			ctx, cancel = t.s.Within(ctx)
			defer cancel()
		}
		if retry.PauseUnless(ctx, t.done, try) {
			continue
		}
		if !sent {
			t.refuseLocal(f)
			return false, nil
		}
		t.undoHandOff(f)
		return true, errtext.Call("release", t.Key, txn.Unknown(txn.WithCause(ctx, err)))
	}
}

// refuseLocal sends a local waiter that cannot be handed the key, and those behind it,
// to the line in etcd.
func (t *Term) refuseLocal(f *LocalWaiter) {
	t.terms.Local.PutBack(&t.local, f)
	t.terms.Local.Close(&t.local)
}

// undoHandOff ends a term whose hand-over was carried out, or may still be. The old
// claim and the new one are deleted in the background, one after the other.
func (t *Term) undoHandOff(f *LocalWaiter) {
	ts, r := t.terms, protocol.Undo{Try: f.Attempt.Claim()}.Build()
	t.terms.CleanUp(f.Attempt.Claim().ID, &lease.Cleanup{Of: t.s, What: "releasing a claim", Do: func(ctx context.Context) error {
		if err := t.delete(ctx); err != nil {
			return err
		}
		_, err := ts.Store.Do(ctx, r)
		return err
	}})
	ts.Local.PutBack(&t.local, f)
	t.finish(claimerr.ErrReleased)
}

// nextLocal takes the first local waiter that still waits, and gives its claim the
// term's epoch.
func (t *Term) nextLocal() *LocalWaiter {
	f := t.terms.Local.Next(&t.local)
	if f == nil {
		return nil
	}
	if e := f.Attempt.Claim().Epoch; e.Value != t.epoch() || e.Rev != t.EpochRev {
		f.Attempt.Under(&txn.Epoch{Value: t.epoch(), Rev: t.EpochRev})
	}
	return f
}

// succeed makes the term of the local waiter that was handed the key, and ends this
// one.
func (t *Term) succeed(f *LocalWaiter, rev int64) {
	ts := t.terms
	grant := f.Attempt.Handed(rev, t.line, ts.Observer.Trace(t))
	abandoned := !ts.Local.Settle(f)
	if abandoned {
		t.s.Again() // its place in the session was given back
	}
	next := ts.Add(grant)
	if next == nil { // the session is dead, and its waiters know, or the client is closed
		f.Attempt.Undo()
		if abandoned {
			t.s.Unreserve()
		}
		t.finish(claimerr.ErrReleased)
		if !abandoned {
			f.Done <- nil
		}
		return
	}
	ts.Local.CloseTo(&t.local, func() *Queue { return &next.local }) // which is closed if it has ended already
	if !abandoned {
		f.Done <- next
	}
	t.finish(claimerr.ErrReleased)
	if abandoned && next.begin() == nil {
		// Its caller has gone meanwhile: the next waiter gets the key.
		t.terms.CleanUp(next.ID, &lease.Cleanup{Of: t.s, What: "handing on a claim that was given up", Do: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, ts.Store.Timeout())
			defer cancel()
			_ = next.drop(ctx)
			return nil
		}})
	}
}
