package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/etcdclaims/claims/internal/txn"
	"github.com/etcdclaims/claims/internal/wire"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// undoing is the undo of one attempt.
type undoing struct {
	a   *attempt
	own string // the key of the claim

	// Of work: where its record is, what it was before the attempt, and the lease that this
	// is put back on. Without a record before, the record of the attempt is deleted.
	work, before string
	lease        clientv3.LeaseID

	all    txn.Request // undoes the attempt, and keeps it from arriving late
	record txn.Request // puts the record back after the claim has ended with its lease
	ended  bool        // the session's lease is gone: record is all that is left to do

	done chan struct{} // of work: closed when it is undone, or with err when that is refused
	err  error
}

// wait waits until the attempt is undone.
func (u *undoing) wait(ctx context.Context) error {
	select {
	case <-u.done:
		if u.err != nil {
			return fmt.Errorf("an earlier attempt of this client cannot be undone: %w", u.err)
		}
		return nil
	case <-u.a.s.c.open.Done():
		return ErrClosed
	case <-ctx.Done():
		return wire.ContextError(ctx)
	}
}

// settle releases callers that wait for the undo, unless it is tried again soon. If etcd
// refuses it, it is tried again, too, but no caller waits for that.
func (u *undoing) settle(err error) {
	select {
	case <-u.done:
		return
	default:
	}
	if err == nil || errors.Is(err, ErrPermissionDenied) || errors.Is(err, ErrRewound) {
		u.err = txn.Failed(err)
		close(u.done)
		u.a.s.c.keys.removeUndo(u)
	}
}

// build makes the requests, for the lease that the record is put back on.
func (u *undoing) build() {
	a, l := u.a, u.a.s.c.store.layout
	drop, gone := a.drop(), a.strayNote() // gone: if the claim is not there, or not any more
	if a.work != nil {
		// An attempt that no caller got must not count, even if its lease, and the
		// claim with it, is gone before it can be undone.
		before := clientv3.OpDelete(u.work)
		if u.before != "" {
			before = clientv3.OpPut(u.work, u.before, clientv3.WithLease(u.lease))
		}
		unclaimed := []clientv3.Cmp{
			clientv3.Compare(clientv3.CreateRevision(u.own), "=", 0),
			clientv3.Compare(clientv3.Value(u.work), "=", a.record),
		}
		u.record = txn.Request{Key: a.lineKey(), Urgent: true, In: txn.Of(unclaimed, []clientv3.Op{before}, nil)}
		drop, gone = append(drop, before), append(gone, clientv3.OpTxn(unclaimed, []clientv3.Op{before}, nil))
	}
	if a.enqueues {
		left := []clientv3.Op{clientv3.OpDelete(a.place()), clientv3.OpDelete(l.notice(l.instance, a.id))}
		drop, gone = append(drop, left...), append(gone, left...)
	}
	if a.slots != nil {
		read := []clientv3.Op{a.slots.readAll(l)}
		drop, gone = append(slices.Clone(read), drop...), append(read, gone...)
	}
	u.all = txn.Request{Key: a.lineKey(), Also: a.alsoKeys(), Urgent: true, In: txn.Of(a.hasKey(), drop, gone)}
	if a.work == nil && !a.readsRecord() {
		u.all.Beside = txn.TakesBack
	}
	if a.unsure && !a.answered {
		u.all.Void = &txn.Void{Ticket: a.ticket, Lease: a.s.id}
	}
}

// do undoes the attempt.
func (u *undoing) do(ctx context.Context) error {
	for {
		err := u.send(ctx)
		if u.a.work == nil || !errors.Is(err, rpctypes.ErrLeaseNotFound) {
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
	a, st := u.a, u.a.s.c.store
	if u.ended {
		_, err := st.Do(ctx, u.record)
		return err
	}
	resp, err := st.Do(ctx, u.all)
	if err == nil && a.slots != nil {
		err = a.dropSlots(ctx, resp.Responses[0].GetResponseRange().Kvs)
	}
	if errors.Is(err, rpctypes.ErrNoSpace) && a.unsure {
		// Nothing may be put, not even by the branch that is not taken:
		// delete now, and make void when there is space.
		if _, derr := st.Do(ctx, txn.Request{Key: a.lineKey(), Urgent: true, In: &pb.TxnRequest{Compare: u.all.In.Compare, Success: u.all.In.Success}}); derr != nil && a.work == nil {
			err = derr
		}
	}
	return err
}

// withoutLease deals with an answer that a lease does not exist. It reports whether it has
// found out which: a lease that merely was not renewed may still be there, with the claim
// on it, and a record that may be put back must not be deleted.
func (u *undoing) withoutLease(ctx context.Context) (again bool, err error) {
	c := u.a.s.c
	if !u.ended {
		if u.ended, err = c.leaseGone(ctx, u.a.s.id); err != nil {
			return false, err
		}
		if u.ended {
			u.a.s.die(ReasonRevoked, nil)
			return true, nil
		}
	}
	if u.lease == clientv3.NoLease {
		return false, nil
	}
	gone, err := c.leaseGone(ctx, u.lease)
	if err != nil || !gone {
		return false, err
	}
	// That shows nothing about the record: the attempt had taken it off that lease, and
	// its owner revokes a lease without records. The lease of the attempt keeps it as
	// long.
	if on := u.a.shelf; on != nil && u.lease != on.id {
		u.lease = on.id
		on.puts.Add(1)
	} else {
		u.before, u.lease = "", clientv3.NoLease // that was revoked, and the record with it
	}
	u.build()
	return true, nil
}
