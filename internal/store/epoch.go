package store

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Epoch returns the epoch as it is known.
func (s *Store) Epoch() *txn.Epoch { return s.epoch.Load() }

// EpochIsLower reports whether etcd has had an epoch below the known one since.
func (s *Store) EpochIsLower() bool { return s.lower.Load() != nil }

// ReadEpoch asks etcd for as little as possible, and learns of a restore by it.
func (s *Store) ReadEpoch(ctx context.Context) error {
	resp, err := s.Do(ctx, txn.Request{In: txn.Then(clientv3.OpGet(s.Layout.Epoch()))})
	if err != nil {
		return txn.Failed(err)
	}
	return s.LearnEpoch(txn.Kvs(resp, 0), resp.Header.Revision)
}

// LearnEpoch takes over the value of the epoch's key at a revision.
func (s *Store) LearnEpoch(kvs []*mvccpb.KeyValue, asOf int64) error {
	e, err := txn.ReadEpoch(kvs, asOf)
	if err != nil {
		return err
	}
	for {
		have := s.epoch.Load()
		switch {
		case asOf < have.AsOf && s.rewound.Load() == nil:
			return nil // replies overtake each other
		case e.Value < have.Value:
			s.seeLower(have, e)
			return fmt.Errorf("%w: so did its epoch, from %d to %d; raise %s above %d (RaiseEpoch, or etcdctl put) and claim again",
				ErrRewound, have.Value, e.Value, s.Layout.Epoch(), have.Value)
		case s.epoch.CompareAndSwap(have, e):
			if low := s.lower.Load(); low != nil && (low.AsOf < asOf || s.rewound.Load() != nil) {
				s.lower.CompareAndSwap(low, nil)
			}
			if !e.Is(have) {
				s.Generation.Advance()
			}
			return nil
		}
	}
}

// seeLower notes an epoch below the known one, and reports it unless the same value was found
// before. After a restore that went back, that has been reported already.
func (s *Store) seeLower(known, found *txn.Epoch) {
	for s.rewound.Load() == nil {
		last := s.lower.Load()
		if last != nil && last.AsOf >= found.AsOf {
			return
		}
		if s.lower.CompareAndSwap(last, found) {
			if last == nil || !last.Is(found) {
				s.cfg.Log.Warn("epoch went back; claims refused until it is raised above the known one",
					zap.String("instance", s.Layout.Instance), zap.String("etcd_key", s.Layout.Epoch()),
					zap.Int64("known", known.Value), zap.Int64("found", found.Value))
			}
			return
		}
	}
}
