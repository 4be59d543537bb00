package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrRewound is returned when etcd's revision went back. Package etcdclaims exports it under the same
// name and documents it.
var ErrRewound = errors.New("etcdclaims: etcd's revision went back")

type rewind struct{ from, to, epoch int64 }

// HasRewound reports whether no claims may be made since the revision went back; see Ready.
func (s *Store) HasRewound() bool { return s.rewound.Load() != nil }

// era is what a request knows of etcd's revisions when it is sent.
type era struct{ rewinds, floor int64 }

// isOver reports whether the revision was found to have gone back, and claims were made again,
// since a request of the era was sent.
func (s *Store) isOver(e era) bool { return s.rewinds.Load() != e.rewinds || s.seen.Load() < e.floor }

// see notes the revision of a reply, and fails closed if it is lower than one that was seen
// before the request was sent.
func (s *Store) see(ctx context.Context, sent era, rev int64) error {
	for {
		seen := s.seen.Load()
		if s.isOver(sent) { // rev may be of before the rewind, and would look like the newest
			return restoredMeanwhile(sent, rev)
		}
		if rev <= seen || s.seen.CompareAndSwap(seen, rev) {
			break
		}
	}
	if rev >= sent.floor {
		return nil
	}
	// A member that slept can answer a linearizable read from its past
	// (etcd-io/etcd#20418). A write cannot be answered so: deleting a key that does not
	// exist goes through consensus, and changes nothing.
	resp, err := RoundTrip(ctx, s, RequestDelete, func(ctx context.Context) (*clientv3.DeleteResponse, error) {
		return s.kv.Delete(ctx, s.Layout.Void(uuid.NewString()))
	})
	if err != nil {
		return fmt.Errorf("revision %d came after %d, and asking again failed: %w", rev, sent.floor, err)
	}
	if resp.Header.Revision >= sent.floor {
		return &pastError{"a member of etcd answered from its past", rev, sent.floor}
	}
	rw := &rewind{from: sent.floor, to: resp.Header.Revision, epoch: s.epoch.Load().Value}
	began := s.rewound.CompareAndSwap(nil, rw)
	if s.isOver(sent) { // dealt with already, so that rw compares with the epoch after that
		s.rewound.CompareAndSwap(rw, nil)
		return restoredMeanwhile(sent, rev)
	}
	if began {
		s.Generation.Advance()
		s.cfg.OnRewind(rw.err(s.Layout))
	}
	return rw.err(s.Layout)
}

func restoredMeanwhile(sent era, rev int64) error {
	return &pastError{"etcd was restored while the request was under way", rev, sent.floor}
}

// pastError says that a reply was of a revision before one that was seen. The same call may
// succeed when it is made again.
type pastError struct {
	what       string
	rev, floor int64
}

// Error returns what is known, with both revisions.
func (e *pastError) Error() string {
	return fmt.Sprintf("%s, revision %d after %d", e.what, e.rev, e.floor)
}

// GRPCStatus makes callers take the error for that of a member that is unavailable.
func (e *pastError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

func (rw *rewind) err(l protocol.Layout) error {
	return fmt.Errorf("%w: from %d to %d; restore snapshots with --bump-revision, or raise %s above %d (RaiseEpoch, or etcdctl put) and claim again",
		ErrRewound, rw.from, rw.to, l.Epoch(), rw.epoch)
}

// Ready returns ErrRewound while no claims may be made: the revision is known to
// have gone back, and no greater epoch has been set since.
func (s *Store) Ready(ctx context.Context) error {
	rw := s.rewound.Load()
	if rw == nil {
		return nil
	}
	resp, err := RoundTrip(ctx, s, RequestRange, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.kv.Get(ctx, s.Layout.Epoch())
	})
	if err != nil {
		return fmt.Errorf("%w (reading the epoch: %w)", rw.err(s.Layout), err)
	}
	if err := s.LearnEpoch(resp.Kvs, resp.Header.Revision); err != nil {
		return err
	}
	if s.epoch.Load().Value <= rw.epoch {
		return rw.err(s.Layout)
	}
	if s.rewound.Load() != rw { // another call has dealt with it
		return s.Ready(ctx)
	}
	s.rewinds.Add(1) // in this order: see isOver
	s.seen.Store(resp.Header.Revision)
	s.rewound.CompareAndSwap(rw, nil)
	return nil
}
