package work

import (
	"context"
	"fmt"
	"sync"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/record"
	"github.com/etcdclaims/claims/internal/retention"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// recordUndo puts back the record as it was before an attempt that no caller got. Such an attempt
// must not count.
type recordUndo struct {
	of       *undos // these are set by add
	host     beside.Host
	claim    string
	key, put string           // the record, and what the attempt has put there
	lease    *retention.Lease // of the attempt
	done     chan struct{}    // closed when it is undone, or with err when that is refused

	// Only the goroutine that undoes the attempt uses these:
	before string           // what was there before, "" if nothing
	on     clientv3.LeaseID // that it is put back on
	over   bool             // the attempt's writer has left

	err error // written before done is closed, read after
}

// undos are the attempts that are being undone, by claim.
type undos struct{ byClaim sync.Map }

// of returns the undo of a claim's attempt, or nil.
func (us *undos) of(claim string) *recordUndo {
	u, _ := us.byClaim.Load(claim)
	undo, _ := u.(*recordUndo)
	return undo
}

// add lists an undo, until it is settled.
func (us *undos) add(u *recordUndo) *recordUndo {
	u.of, u.done = us, make(chan struct{})
	u.lease.Enter()
	us.byClaim.Store(u.claim, u)
	return u
}

// wait waits until the attempt is undone.
func (u *recordUndo) wait(ctx context.Context) error {
	select {
	case <-u.done:
		if u.err != nil {
			return fmt.Errorf("an earlier attempt of this client cannot be undone: %w", u.err)
		}
		return nil
	case <-u.host.Open().Done():
		return etcdclaims.ErrClosed
	case <-ctx.Done():
		return txn.ContextError(ctx)
	}
}

// Ops put the record back if it is that of the attempt.
func (u *recordUndo) Ops() []*pb.RequestOp {
	return []*pb.RequestOp{record.Undo(u.key, u.put, u.before, int64(u.on))}
}

// Settled releases callers that wait for the undo, unless it is tried again soon.
func (u *recordUndo) Settled(err error) {
	if err == nil && !u.over {
		u.over = true
		u.lease.Leave(false)
	}
	select {
	case <-u.done:
	default:
		u.err = err
		close(u.done)
		u.of.byClaim.CompareAndDelete(u.claim, u)
	}
}

// LeaseGone finds another lease for the record if its own is gone. A lease that merely was not
// renewed may still be there, and a record that may be put back must not be deleted.
func (u *recordUndo) LeaseGone(ctx context.Context) (changed bool, err error) {
	if u.on == clientv3.NoLease {
		return false, nil
	}
	gone, err := u.host.LeaseGone(ctx, u.on)
	if err != nil || !gone {
		return false, err
	}
	// That shows nothing about the record: the attempt had taken it off that lease, and
	// its owner revokes a lease without records. The lease of the attempt keeps it as
	// long.
	if u.on != u.lease.ID() {
		u.on = u.lease.ID()
		u.lease.Count(1)
	} else {
		u.before, u.on = "", clientv3.NoLease // that was revoked, and the record with it
	}
	return true, nil
}
