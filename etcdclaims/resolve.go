package etcdclaims

import (
	"context"
	"errors"
	"slices"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// resolve finds out what became of a request whose reply was lost: it succeeded
// with the returned revision, or it did not and, with rev 0, never will. It
// tries until ctx or the session ends.
func (a *attempt) resolve(ctx context.Context) (rev int64, err error) {
	st := a.s.c.store
	own := st.layout.own(a.key)
	r := txn.Request{Key: a.lineKey(), Also: a.alsoKeys(), Urgent: true}
	if !a.answered { // otherwise a void would need space
		r.Void = &txn.Void{Ticket: a.ticket, Lease: a.s.id}
		a.s.voided(a.ticket)
	}
	els := a.strayNote()
	if a.enqueues {
		els = append(els, clientv3.OpDelete(a.place()))
	}
	if a.slots != nil { // it may have been handed another slot than it has tried
		els = append([]clientv3.Op{a.slots.readAll(st.layout)}, els...)
	}
	for _, b := range a.with {
		// It may be there all the same, if somebody has taken away the first.
		els = append(els, clientv3.OpTxn(b.hasKey(), b.drop(), b.strayNote()))
		r.Also = append(r.Also, b.key)
	}
	r.In = txn.Of(a.hasKey(), []clientv3.Op{clientv3.OpGet(own, clientv3.WithKeysOnly())}, els)
	for try := 0; ; try++ {
		resp, err := st.Do(ctx, r)
		switch {
		case err == nil && resp.Succeeded:
			if a.enqueues {
				a.handed() // for all that is known
			}
			return resp.Responses[0].GetResponseRange().Kvs[0].ModRevision, nil
		case err == nil:
			a.unsure = false
			if a.slots != nil {
				if kv := a.findSlot(resp.Responses[0].GetResponseRange().Kvs); kv != nil {
					a.handed()
					return a.taken(kv), nil
				}
			}
			return 0, nil
		case a.s.gone(ctx, err, false):
			if len(a.opts.ops) > 0 {
				// The claim is no more, and what was put beside it may be there. The
				// cause is not wrapped: a caller that retries when a lease is gone must not
				// retry this.
				return 0, txn.Unknown(errors.New(errtext.Bare(err)))
			}
			return 0, nil // whatever arrives late needs the lease
		case !errors.Is(err, ErrUnknown) && !txn.IsTransient(err):
			return 0, txn.Unknown(err)
		}
		if !retry.PauseUnless(ctx, a.s.dead, try) {
			return 0, txn.Unknown(txn.WithCause(ctx, err))
		}
	}
}

// strayNote deletes the note that the attempt put with a claim that somebody has
// taken away since.
func (a *attempt) strayNote() []clientv3.Op {
	if a.opts.note == nil {
		return nil
	}
	return []clientv3.Op{a.s.strayNote(a.key)}
}

// strayNote deletes a note of the session's, unless the session has the key: then
// it may be that claim's.
func (s *session) strayNote(key string) clientv3.Op {
	l := s.c.store.layout
	own, note := l.own(key), l.note(key)
	return clientv3.OpTxn([]clientv3.Cmp{
		clientv3.Compare(clientv3.LeaseValue(own), "!=", int64(s.id)),
		clientv3.Compare(clientv3.LeaseValue(note), "=", int64(s.id)),
	}, []clientv3.Op{clientv3.OpDelete(note)}, nil)
}

// drop deletes what claims the key. Without a note it needs no permission on notes.
func (a *attempt) drop() []clientv3.Op {
	l := a.s.c.store.layout
	ops := []clientv3.Op{clientv3.OpDelete(l.own(a.key))}
	if a.opts.note != nil {
		ops = append(ops, clientv3.OpDelete(l.note(a.key)))
	}
	if a.shared != nil {
		ops = append(ops, a.clearsShared())
	}
	return ops
}

// undo takes back, in the background, whatever the attempt may have put or may
// yet put, so that a shared lease never keeps alive a claim that nobody has.
func (a *attempt) undo() {
	a = a.copied()
	st := a.s.c.store
	own := st.layout.own(a.key)
	drop := a.drop()
	gone := a.strayNote() // if the claim is not there, or not any more
	var restore txn.Request
	build := func(before clientv3.Op) (r txn.Request) {
		work := st.layout.work(a.key)
		drop, gone := slices.Clone(drop), slices.Clone(gone)
		if a.work != nil {
			// An attempt that nobody knew of must not count, even if its lease, and
			// the claim with it, is gone before it can be undone.
			unclaimed := []clientv3.Cmp{
				clientv3.Compare(clientv3.CreateRevision(own), "=", 0),
				clientv3.Compare(clientv3.Value(work), "=", a.record),
			}
			restore = txn.Request{Key: a.lineKey(), Urgent: true, In: txn.Of(unclaimed, []clientv3.Op{before}, nil)}
			drop, gone = append(drop, before), append(gone, clientv3.OpTxn(unclaimed, []clientv3.Op{before}, nil))
		}
		if a.enqueues {
			left := []clientv3.Op{clientv3.OpDelete(a.place()), clientv3.OpDelete(st.layout.notice(st.layout.instance, a.id))}
			drop, gone = append(drop, left...), append(gone, left...)
		}
		if a.slots != nil {
			read := []clientv3.Op{a.slots.readAll(st.layout)}
			drop, gone = append(read, drop...), append(read, gone...)
		}
		r = txn.Request{Key: a.lineKey(), Also: a.alsoKeys(), Urgent: true, In: txn.Of(a.hasKey(), drop, gone)}
		if a.work == nil && !a.readsRecord() {
			r.Beside = txn.TakesBack
		}
		if a.unsure && !a.answered {
			r.Void = &txn.Void{Ticket: a.ticket, Lease: a.s.id}
		}
		return r
	}
	var r txn.Request
	before, onLease := clientv3.Op{}, false
	if a.work != nil {
		before, onLease = a.work.restore(st.layout.work(a.key)), a.work.lease != clientv3.NoLease
	}
	if r = build(before); r.Void != nil {
		a.s.voided(a.ticket)
	}
	a.s.c.addCleanup(&cleanup{s: a.s, shelf: a.shelf, what: "undoing a claim that was given up", outlives: a.work != nil, do: func(ctx context.Context) error {
		resp, err := st.Do(ctx, r)
		if err == nil && a.slots != nil {
			err = a.dropSlots(ctx, resp.Responses[0].GetResponseRange().Kvs)
		}
		if errors.Is(err, rpctypes.ErrNoSpace) && a.unsure {
			// Nothing may be put, not even by the branch that is not taken:
			// delete now, and make void when there is space.
			if _, derr := st.Do(ctx, txn.Request{Key: a.lineKey(), Urgent: true, In: &pb.TxnRequest{Compare: r.In.Compare, Success: r.In.Success}}); derr != nil && a.work == nil {
				err = derr
			}
		}
		if a.work != nil && errors.Is(err, rpctypes.ErrLeaseNotFound) {
			if !a.s.gone(ctx, err, onLease) {
				// The record before was on that lease, and would be forgotten by now.
				r, onLease = build(clientv3.OpDelete(st.layout.work(a.key))), false
				_, err = st.Do(ctx, r)
			} else if _, err = st.Do(ctx, restore); errors.Is(err, rpctypes.ErrLeaseNotFound) {
				r, onLease = build(clientv3.OpDelete(st.layout.work(a.key))), false
				_, err = st.Do(ctx, restore)
			}
		}
		if err == nil {
			a.s.c.log.Debug("claim undone", zap.String("key", a.key), zap.String("claim", a.id))
		}
		return err
	}})
}
