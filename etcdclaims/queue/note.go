package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// note is the value of note/<id>. It is on the lease of the worker's session, so that
// nothing is left of it with a dead worker.
type note struct {
	Version int    `json:"v"`
	Nonce   string `json:"nonce"` // of the item as it was taken: whose note it is
	Text    []byte `json:"text"`
}

// noted is the note of a lease. A call uses it only while it has the lease's turn.
type noted struct {
	text  []byte
	rev   int64 // ModRevision of the note; 0: none is known
	tried bool  // there may be one
}

// Note stores a note about the progress of the item, for people: Look shows it while
// the lease lasts. It replaces the lease's note from before, and is deleted with the
// lease. The fence stays the same. Notes of one Delivery are stored in the order of the
// calls.
//
// A note longer than etcdclaims.MaxNoteBytes returns etcdclaims.ErrTooLarge. The other
// errors are those of all verbs, see the package documentation, but they do not end the
// lease. If the error matches etcdclaims.ErrUnknown the note may have been stored.
func (l *Delivery) Note(ctx context.Context, b []byte) error {
	if len(b) > etcdclaims.MaxNoteBytes {
		return l.fail("note", fmt.Errorf("%d bytes, at most %d are allowed: %w", len(b), etcdclaims.MaxNoteBytes, etcdclaims.ErrTooLarge))
	}
	done, err := l.turn(ctx)
	if err != nil {
		return l.fail("note", err)
	}
	defer done()
	_, sid, st, rev, _ := l.snapshot()
	key, at := l.q.keys.takenBy(sid)+st.ID, l.q.keys.note(st.ID)
	value := encode(note{Version: valueVersion, Nonce: st.Nonce, Text: b})
	var unsure error
	for try := 0; ; try++ {
		via, cmps, err := l.via(ctx)
		var lease clientv3.LeaseID
		if err == nil {
			lease, err = via.leaseID(ctx)
			if errors.Is(err, ErrExpired) && l.resumed() && retry.Pause(ctx, try) {
				continue // as below, and the session does not know it yet
			}
		}
		if err != nil {
			return l.fail("note", unsureOr(unsure, err))
		}
		l.note.tried = true
		// The revision of the note keeps a late copy of this request from replacing a later one.
		resp, err := via.claim.Txn(ctx).If(append(cmps, unmoved(key, rev), unmoved(at, l.note.rev))...).
			Then(clientv3.OpPut(at, value, clientv3.WithLease(lease))).Else(clientv3.OpGet(key), clientv3.OpGet(at)).Commit()
		switch {
		case err == nil && resp.Succeeded:
			l.note.text, l.note.rev = b, resp.Header.Revision
			return nil
		case err == nil:
			taken, there := txn.Kvs(resp, 0), int64(0)
			if kvs := txn.Kvs(resp, 1); len(kvs) > 0 {
				there = kvs[0].ModRevision
				if unsure != nil && there != l.note.rev && string(kvs[0].Value) == value {
					l.note.text, l.note.rev = b, there
					return nil // by an earlier try
				}
			}
			if len(taken) == 0 || taken[0].ModRevision != rev || there == l.note.rev {
				_, err := l.refused(ctx, "note", key, rev, resp, nil)
				return err
			}
			l.note.rev = there // of an earlier lease, or of another holder of this one
			continue
		case errors.Is(err, rpctypes.ErrNoSpace):
			return l.fail("note", err) // it lasts; and etcd answers so to the request by which it has run out
		case errors.Is(err, etcdclaims.ErrUnknown):
			unsure = err
		case errors.Is(err, etcdclaims.ErrLost):
			if l.resumed() {
				continue // this process's session ended, not the lease
			}
			l.finish(ErrExpired)
			return l.fail("note", fmt.Errorf("%w: %w", ErrExpired, err))
		case !passing(err):
			return l.fail("note", unsureOr(unsure, err))
		}
		if !retry.Pause(ctx, try) {
			return l.fail("note", fmt.Errorf("%w (%w)", unsureOr(unsure, err), context.Cause(ctx)))
		}
	}
}

// unnote removes the note with a request that ends the lease.
func (l *Delivery) unnote(id string) []clientv3.Op {
	if !l.note.tried && l.by == "" { // else another holder may have made one
		return nil
	}
	return []clientv3.Op{clientv3.OpDelete(l.q.keys.note(id))}
}

// renote keeps the note with a request that moves the lease to another session.
func (l *Delivery) renote(ctx context.Context, next *session, st state) ([]clientv3.Op, error) {
	if l.note.rev == 0 {
		return l.unnote(st.ID), nil
	}
	lease, err := next.leaseID(ctx)
	if err != nil {
		return nil, err
	}
	value := encode(note{Version: valueVersion, Nonce: st.Nonce, Text: l.note.text})
	return []clientv3.Op{clientv3.OpPut(l.q.keys.note(st.ID), value, clientv3.WithLease(lease))}, nil
}

// noteOf returns the note of a taken item, if it is of the worker that has it.
func noteOf(st state, kvs []*mvccpb.KeyValue) []byte {
	if len(kvs) == 0 {
		return nil
	}
	n, err := decode[note](kvs[0].Key, kvs[0].Value)
	if err != nil || n.Nonce != st.Nonce {
		return nil
	}
	return n.Text
}

// leaseID returns the lease of the session in etcd.
func (s *session) leaseID(ctx context.Context) (clientv3.LeaseID, error) {
	s.mu.Lock()
	lease := s.lease
	s.mu.Unlock()
	if lease != clientv3.NoLease {
		return lease, nil
	}
	resp, err := get(ctx, s.q.claims, s.q.ownKey(s.id))
	switch {
	case err != nil:
		return clientv3.NoLease, err
	case len(resp.Kvs) == 0:
		return clientv3.NoLease, ErrExpired
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = clientv3.LeaseID(resp.Kvs[0].Lease)
	return s.lease, nil
}
