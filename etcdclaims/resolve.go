package etcdclaims

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
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
		// It may still be there, if an operator took the first away.
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
				// The claim is gone, and the keys beside it may be there. The
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

// strayNote deletes the note that the attempt put with a claim that was taken away
// since.
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

// undo removes, in the background, all that the attempt may have put or may yet put. So
// a shared lease never keeps a claim without a holder alive.
func (a *attempt) undo() {
	a = a.copied()
	u := &undoing{a: a}
	if a.put != nil {
		u.beside = a.opts.beside.Undo(a.put)
	}
	u.build()
	if u.all.Void != nil {
		a.s.voided(a.ticket)
	}
	a.s.c.addCleanup(&cleanup{s: a.s, what: "undoing a claim that was given up", outlives: a.put != nil, do: func(ctx context.Context) error {
		err := u.do(ctx)
		if err == nil {
			a.s.c.log.Debug("claim undone", zap.String("key", a.key), zap.String("claim", a.id))
		}
		u.settle(err)
		return err
	}})
}
