package etcdclaims

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// handOffLocal hands the key to the first local waiter, if there is one and no other
// caller came before it. Otherwise the caller releases the key, with the line as far as
// it is known by then.
func (t *term) handOffLocal(ctx context.Context) (passed bool, err error) {
	c := t.s.c
	f := t.nextLocal()
	if f == nil {
		return false, nil
	}
	step := t.leaving()
	t.learnLine(ctx, step)
	c.keys.Register(f.Attempt.ID) // whether or not its caller waits for it
	defer c.keys.Unregister(f.Attempt.ID)
	sent := false // a request that may have been carried out
	for try := 0; ; try++ {
		if len(t.line.Next) > 0 && !sent && !c.local.CameFirst(f, t.line.Next[0].Rev) {
			c.local.PutBack(&t.local, f)
			return false, nil
		}
		there := c.local.Waiting(&t.local)
		resp, err := c.store.Do(ctx, step.Within(t.line, f.Attempt.Value, int64(t.s.id)))
		switch {
		case err == nil && resp.Succeeded:
			c.local.RecordArrival(there, resp.Header.Revision)
			t.succeed(f, resp.Header.Revision)
			return true, nil
		case err == nil && f.Attempt.Found(txn.First(resp, 0)) > 0:
			t.succeed(f, f.Attempt.Found(txn.First(resp, 0))) // by a request whose reply was lost
			return true, nil
		case err == nil && step.StillOwned((*pb.TxnResponse)(resp)):
			t.line = step.JudgeLine((*pb.TxnResponse)(resp)).Line
			continue
		case err == nil, !sent && !errors.Is(err, ErrUnknown) && !txn.IsTransient(err):
			t.refuseLocal(f)
			return false, nil
		case errors.Is(err, ErrUnknown):
			sent = true
		}
		if try == 0 {
			var cancel context.CancelFunc
			ctx, cancel = t.s.within(ctx)
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
		return true, callError("release", t.Key, txn.Unknown(txn.WithCause(ctx, err)))
	}
}

// refuseLocal sends a local waiter that cannot be handed the key, and those behind it,
// to the line in etcd.
func (t *term) refuseLocal(f *localWaiter) {
	t.s.c.local.PutBack(&t.local, f)
	t.s.c.local.Close(&t.local)
}

// undoHandOff ends a term whose hand-over was carried out, or may still be. The old
// claim and the new one are deleted in the background, one after the other.
func (t *term) undoHandOff(f *localWaiter) {
	c, r := t.s.c, protocol.Undo{Try: &f.Attempt.Try}.Build()
	c.addCleanup(&cleanup{s: t.s, claim: f.Attempt.ID, what: "releasing a claim", do: func(ctx context.Context) error {
		if err := t.delete(ctx); err != nil {
			return err
		}
		_, err := c.store.Do(ctx, r)
		return err
	}})
	c.local.PutBack(&t.local, f)
	t.finish(ErrReleased)
}

// nextLocal takes the first local waiter that still waits, and gives its claim the
// term's epoch.
func (t *term) nextLocal() *localWaiter {
	f := t.s.c.local.Next(&t.local)
	if f == nil {
		return nil
	}
	if e := f.Attempt.Epoch; e.Value != t.Fence>>epochShift || e.Rev != t.EpochRev {
		f.Attempt.Epoch = &txn.Epoch{Value: t.Fence >> epochShift, Rev: t.EpochRev}
		f.Attempt.describe()
	}
	return f
}

// succeed makes the term of the local waiter that was handed the key, and ends this
// one.
func (t *term) succeed(f *localWaiter, rev int64) {
	c := t.s.c
	f.Attempt.granted, f.Attempt.line, f.Attempt.trace = rev, t.line, c.events.trace(t)
	abandoned := !c.local.Settle(f)
	if abandoned {
		t.s.again() // its place in the session was given back
	}
	next := t.s.newTerm(f.Attempt, f.Attempt.Epoch.Fence(rev))
	if next == nil { // the session is dead, and its waiters know, or the client is closed
		f.Attempt.undo()
		if abandoned {
			t.s.unreserve()
		}
		t.finish(ErrReleased)
		if !abandoned {
			f.Done <- nil
		}
		return
	}
	c.local.CloseTo(&t.local, func() *localQueue { return &next.local }) // which is closed if it has ended already
	if !abandoned {
		f.Done <- next
	}
	t.finish(ErrReleased)
	if abandoned && next.begin() == nil {
		// Its caller has gone meanwhile: the next waiter gets the key.
		c.addCleanup(&cleanup{s: t.s, claim: next.ID, what: "handing on a claim that was given up", do: func(ctx context.Context) error {
			_ = next.drop(ctx)
			return nil
		}})
	}
}
