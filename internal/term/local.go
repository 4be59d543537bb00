package term

import (
	"context"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
)

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

// leaveTo moves the local waiters of the term behind a waiter of this client that was
// handed the key, if that has the same session: their claims will be on its lease,
// and their places are counted in their own session.
func (t *Term) leaveTo(id string) {
	ts := t.terms
	left := ts.Waiters.QueueOf(id, t.s)
	ts.Local.CloseTo(&t.local, func() *Queue {
		next := ts.Keys.Term(t.Key)
		if next != nil && next.ID == id && next.s == t.s && !next.local.Closed {
			return &next.local
		}
		return left
	})
	if t := ts.Keys.Term(t.Key); left != nil && t != nil && t.ID == id { // it became a term meanwhile
		ts.Local.Inherit(left, &t.local)
	}
}

// arrange does what becomes of the local waiters.
func (x *exit) arrange(f protocol.LocalFate) {
	local, q := &x.t.terms.Local, &x.t.local
	if f == protocol.LocalsStay {
		return
	}
	if x.local != nil {
		local.PutBack(q, x.local)
		x.local = nil
	}
	if f == protocol.LocalsEnqueue {
		local.Close(q)
	}
}
