package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

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
	held := l.hold()
	var unsure error
	for try := 0; ; try++ {
		via, err := l.via(ctx)
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
		write := item.WriteNote{Held: held, Text: b, Lease: int64(lease), Before: l.note.rev}
		resp, err := via.send(ctx, write.Build())
		switch {
		case err == nil && resp.Succeeded:
			l.note.text, l.note.rev = b, resp.Header.Revision
			return nil
		case err == nil:
			hold, there, same := write.Found(resp)
			if unsure != nil && same && there != l.note.rev {
				l.note.text, l.note.rev = b, there
				return nil // by an earlier try
			}
			if hold != item.Stands || there == l.note.rev {
				_, err := l.refused(ctx, "note", held, hold, nil)
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

// leaseID returns the lease of the session in etcd.
func (s *session) leaseID(ctx context.Context) (clientv3.LeaseID, error) {
	s.mu.Lock()
	lease := s.lease
	s.mu.Unlock()
	if lease != clientv3.NoLease {
		return lease, nil
	}
	resp, err := get(ctx, s.q.claims, s.q.keys.Own(s.id))
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
