package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// batch makes the group commit of the session's calls: one for verbs and one for enqueues.
// A round trip carries the guard of the session's claim once, however many calls share it.
func (s *session) batch() {
	s.verbs, s.puts = s.batcher(), s.batcher(s.q.keys.Activate())
}

// batcher returns group commit whose every round trip has further operations.
func (s *session) batcher(also ...*pb.RequestOp) *txn.Batcher {
	return txn.NewBatcher(txn.Config{
		IO: s.io, Timeout: requestTimeout,
		// The claim bounds the request, by its deadline and the client's timeout.
		Send: func(ctx context.Context, in *pb.TxnRequest, _ time.Duration) (*clientv3.TxnResponse, error) {
			return txn.CommitMessage(s.claim.Txn(ctx), in)
		},
		EpochKey: []byte(keyspace.EpochKey(s.q.claims.Prefix())),
		Also:     also,
		Gather:   true,
		Limits:   s.q.size.Limits,
		OfAll:    func(err error) bool { return errors.Is(err, etcdclaims.ErrLost) || passing(err) },
	})
}

// share carries out a transaction under the session's guard, in a round trip with others
// if possible. Its conditions must not depend on what requests of other keys write, nor
// its operations on their order.
func (s *session) share(ctx context.Context, b *txn.Batcher, r txn.Request) (*pb.TxnResponse, error) {
	if slices.ContainsFunc(r.In.Success, func(op *pb.RequestOp) bool { return op.GetRequestTxn() != nil }) {
		r.Key = "" // alone: etcd evaluates all conditions of a request first
	}
	if txn.MetadataOf(ctx).Name != "" {
		r.Key = "" // alone: others must not be sent with its credentials
	}
	if key := r.Key; key != "" {
		if _, another := s.shared.LoadOrStore(key, true); another {
			r.Key = "" // alone, too: of one key only one can be in a round trip, and others would wait for theirs
		} else {
			defer s.shared.Delete(key)
		}
	}
	resp, err := b.Do(ctx, r)
	return (*pb.TxnResponse)(resp), ofQueue(err)
}

// ofQueue returns the error of a transaction under the session's claim, which the user does not know.
func ofQueue(err error) error {
	if errors.Is(err, etcdclaims.ErrReleased) && !errors.Is(err, etcdclaims.ErrUnknown) {
		return errClosed
	}
	return err
}

// check refuses a transaction with operations of a caller that must not be sent.
func (s *session) check(ctx context.Context, in *pb.TxnRequest) error {
	cmps, then, els := txn.Operations(in)
	_, err := txn.Message(s.claim.Txn(ctx).If(cmps...).Then(then...).Else(els...))
	return err
}

// unbatch ends the group commit of a session that is over. Calls that wait for a round
// trip get the reason.
func (s *session) unbatch() {
	why := s.claim.Err()
	if !errors.Is(why, etcdclaims.ErrLost) {
		why = errClosed
	}
	s.endIO(why)
	s.verbs.Wait()
	s.puts.Wait()
}
