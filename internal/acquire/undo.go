package acquire

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/store"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Undo removes, in the background, all that the attempt may have put or may yet put. So
// a shared lease never keeps a claim without a holder alive.
func (a *Attempt) Undo() {
	a = a.copied()
	u := &undoing{a: a}
	if a.Put != nil {
		u.beside = a.Call.Beside.Undo(a.Put)
	}
	u.build()
	if u.all.Void != nil {
		a.S.Voided(a.Ticket)
	}
	first := a.Undone != nil && a.Settled()
	do := func(ctx context.Context) error {
		err := u.do(ctx)
		if first && err == nil {
			a.Undone()
		}
		first = false
		if err == nil {
			a.ac.Log.Debug("claim undone", zap.String("key", a.claimKey()), zap.String("claim", a.ID))
		}
		u.settle(err)
		return err
	}
	a.ac.CleanUp(a.ID, &lease.Cleanup{Of: a.S, What: "undoing a claim that was given up", Outlives: a.Put != nil, Do: do})
}

// undoing is the undo of one attempt.
type undoing struct {
	a      *Attempt
	beside beside.Undo // of what it has put beside the claim, or nil

	step  protocol.Undo
	all   txn.Request // undoes the attempt, and keeps it from arriving late
	ended bool        // the session's lease is gone: what is beside the claim is all that is left to undo
}

// settle reports how the undo went. If etcd refuses it, it is tried again, but no caller waits for
// that.
func (u *undoing) settle(err error) {
	if u.beside != nil && (err == nil || errors.Is(err, txn.ErrPermissionDenied) || errors.Is(err, store.ErrRewound)) {
		u.beside.Settled(txn.Failed(err))
	}
}

// build makes the request.
func (u *undoing) build() {
	var besides []*pb.RequestOp
	if u.beside != nil {
		// An attempt that no caller got must not count, even if its lease, and the
		// claim with it, is gone before it can be undone.
		besides = u.beside.Ops()
	}
	u.step = u.a.Undoing(besides)
	u.all = u.step.Build()
}

// do undoes the attempt.
func (u *undoing) do(ctx context.Context) error {
	for {
		err := u.send(ctx)
		if u.beside == nil || !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return err
		}
		again, why := u.withoutLease(ctx)
		if why != nil {
			return why
		}
		if !again {
			return err
		}
	}
}

// send sends the request that is left.
func (u *undoing) send(ctx context.Context) error {
	a, st := u.a, u.a.ac.Store
	if u.ended {
		_, err := st.Do(ctx, txn.Request{Key: a.lineKey(), Urgent: true, In: &pb.TxnRequest{Success: u.beside.Ops()}})
		return err
	}
	resp, err := st.Do(ctx, u.all)
	if err == nil {
		err = a.dropElsewhere(ctx, resp)
	}
	if errors.Is(err, rpctypes.ErrNoSpace) && u.step.Unsure {
		// Nothing may be put, not even by the branch that is not taken:
		// delete now, and make void when there is space.
		if _, derr := st.Do(ctx, u.step.WithoutSpace()); derr != nil && u.beside == nil {
			err = derr
		}
	}
	return err
}

// dropElsewhere gives up what the attempt was handed beside the claim that it has, or had, as a reply
// shows.
func (a *Attempt) dropElsewhere(ctx context.Context, resp *clientv3.TxnResponse) error {
	r, some := protocol.Drop{Try: &a.Try, Claims: a.Elsewhere((*pb.TxnResponse)(resp))}.Build()
	if !some {
		return nil
	}
	_, err := a.ac.Store.Do(ctx, r)
	return err
}

// withoutLease deals with an answer that a lease does not exist. It reports whether it has
// found out which: a lease that merely was not renewed may still be there, with the claim
// on it.
func (u *undoing) withoutLease(ctx context.Context) (again bool, err error) {
	if !u.ended {
		if u.ended, err = u.a.ac.Store.LeaseGone(ctx, u.a.S.ID()); err != nil {
			return false, err
		}
		if u.ended {
			u.a.S.Die(claimerr.Loss{Reason: claimerr.Revoked})
			return true, nil
		}
	}
	if again, err = u.beside.LeaseGone(ctx); again {
		u.build()
	}
	return again, err
}
