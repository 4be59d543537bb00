package term

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Commit carries out a user's operations under the guard.
func (t *Term) Commit(ctx context.Context, then []*pb.RequestOp, concern []string) (*clientv3.TxnResponse, error) {
	r := protocol.Commit{Held: &t.Held, Then: then, Concern: concern}.Build()
	resp, err := t.terms.Store.Do(ctx, r)
	switch {
	case err == nil && !resp.Succeeded:
		t.Owned(resp)
		return nil, t.loss()
	case err == nil:
		return resp, nil
	case errors.Is(err, claimerr.ErrClosed), errors.Is(err, claimerr.ErrLost):
		return nil, err
	}
	return nil, errtext.Call("commit under the claim on", t.Token().Key, err)
}

// Check returns nil if the claim is held now, by the clock of this machine, and is not being given up.
func (t *Term) Check() error {
	wallSaysOver, err := t.CheckSure()
	key, fence := t.Token().Key, t.Token().Fence
	switch {
	case err == nil && t.parting.Load() != staying:
		return errtext.Call("check", key, fmt.Errorf("the claim (fence %d) is being given up: %w", fence, claimerr.ErrReleased))
	case wallSaysOver:
		return errtext.Call("check", key, fmt.Errorf(
			"the wall clock jumped past the deadline of the claim (fence %d), which is being verified: %w", fence, txn.ErrUnknown))
	}
	return err
}

// CheckSure is Check by the clocks that cannot be stepped. It is enough for what
// carries its guard to etcd, which judges by no clock of this machine.
func (t *Term) CheckSure() (wallSaysOver bool, err error) {
	if err := t.Standing(); err != nil {
		return false, err
	}
	if len(t.limits) > 0 {
		t.enforceLimits() // the process was stopped, or the machine slept, when the timers should have fired
		if err := t.Standing(); err != nil {
			return false, err
		}
	}
	left, wallSaysOver := t.s.Left()
	if left <= 0 {
		t.s.Enforce() // the process was stopped when the timer should have fired
		if err := t.Err(); err != nil {
			return false, err
		}
		return false, claimerr.Loss{Reason: claimerr.Expired}.Of(t.Token())
	}
	if wallSaysOver {
		t.s.RenewSoon()
	}
	return wallSaysOver, nil
}
