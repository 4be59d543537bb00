package etcdclaims

import (
	"context"
	"errors"
	"slices"

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
	r := request{
		key: a.key, urgent: true,
		cmps: a.hasKey(),
		then: []clientv3.Op{clientv3.OpGet(own, clientv3.WithKeysOnly())},
		els:  a.strayNote(),
		void: &void{ticket: a.ticket, lease: a.s.id},
	}
	if a.answered {
		r.void = nil // which would need space
	} else {
		a.s.voided(a.ticket)
	}
	if a.enqueues {
		r.els = append(r.els, clientv3.OpDelete(st.layout.waiter(a.key, a.id)))
	}
	for _, b := range a.with {
		// It may be there all the same, if somebody has taken away the first.
		r.els = append(r.els, clientv3.OpTxn(b.hasKey(), b.drop(), b.strayNote()))
		r.also = append(r.also, b.key)
	}
	for try := 0; ; try++ {
		resp, err := st.do(ctx, r)
		switch {
		case err == nil && resp.Succeeded:
			if a.enqueues {
				a.handed() // for all that is known
			}
			return resp.Responses[0].GetResponseRange().Kvs[0].ModRevision, nil
		case err == nil:
			a.unsure = false
			return 0, nil
		case a.s.gone(ctx, err, false):
			if len(a.opts.ops) > 0 {
				// The claim is no more, and what was put beside it may be there. The
				// cause is not wrapped: who tries again when a lease is gone must not.
				return 0, unknown(errors.New(cause(err)))
			}
			return 0, nil // whatever arrives late needs the lease
		case !errors.Is(err, ErrUnknown) && !isTransient(err):
			return 0, unknown(err)
		}
		if !backOff(ctx, try, a.s.dead) {
			return 0, unknown(withCause(ctx, err))
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

// drop deletes what claims the key.
func (a *attempt) drop() []clientv3.Op {
	l := a.s.c.store.layout
	return []clientv3.Op{clientv3.OpDelete(l.own(a.key)), clientv3.OpDelete(l.note(a.key))}
}

// undo takes back, in the background, whatever the attempt may have put or may
// yet put, so that a shared lease never keeps alive a claim that nobody has.
func (a *attempt) undo() {
	st := a.s.c.store
	own := st.layout.own(a.key)
	drop := a.drop()
	gone := a.strayNote() // if the claim is not there, or not any more
	var restore request
	build := func(before clientv3.Op) (r request) {
		work := st.layout.work(a.key)
		drop, gone := slices.Clone(drop), slices.Clone(gone)
		if a.work != nil {
			// An attempt that nobody knew of must not count, even if its lease, and
			// the claim with it, is gone before it can be undone.
			restore = request{
				key: a.key, urgent: true,
				cmps: []clientv3.Cmp{
					clientv3.Compare(clientv3.CreateRevision(own), "=", 0),
					clientv3.Compare(clientv3.Value(work), "=", a.record),
				},
				then: []clientv3.Op{before},
			}
			drop, gone = append(drop, before), append(gone, restore.op())
		}
		if a.enqueues {
			left := []clientv3.Op{clientv3.OpDelete(st.layout.waiter(a.key, a.id)), clientv3.OpDelete(st.layout.won(st.layout.instance, a.id))}
			drop, gone = append(drop, left...), append(gone, left...)
		}
		r = request{
			key: a.key, urgent: true, takesBack: a.work == nil,
			cmps: a.hasKey(),
			then: drop, els: gone,
		}
		if a.unsure && !a.answered {
			r.void = &void{ticket: a.ticket, lease: a.s.id}
		}
		return r
	}
	var r request
	before, onLease := clientv3.Op{}, false
	if a.work != nil {
		before, onLease = a.work.restore(st.layout.work(a.key)), a.work.lease != clientv3.NoLease
	}
	if r = build(before); r.void != nil {
		a.s.voided(a.ticket)
	}
	a.s.c.addChore(&chore{s: a.s, what: "undoing a claim that was given up", outlives: a.work != nil, do: func(ctx context.Context) error {
		_, err := st.do(ctx, r)
		if errors.Is(err, rpctypes.ErrNoSpace) && a.unsure {
			// Nothing may be put, not even by the branch that is not taken:
			// delete now, and make void when there is space.
			if _, derr := st.do(ctx, request{key: a.key, urgent: true, cmps: r.cmps, then: r.then}); derr != nil && a.work == nil {
				err = derr
			}
		}
		if a.work != nil && errors.Is(err, rpctypes.ErrLeaseNotFound) {
			if !a.s.gone(ctx, err, onLease) {
				// The record before was on that lease, and would be forgotten by now.
				r, onLease = build(clientv3.OpDelete(st.layout.work(a.key))), false
				_, err = st.do(ctx, r)
			} else if _, err = st.do(ctx, restore); errors.Is(err, rpctypes.ErrLeaseNotFound) {
				r, onLease = build(clientv3.OpDelete(st.layout.work(a.key))), false
				_, err = st.do(ctx, restore)
			}
		}
		if err == nil {
			a.s.c.log.Debug("claim undone", zap.String("key", a.key), zap.String("claim", a.id))
		}
		return err
	}})
}
