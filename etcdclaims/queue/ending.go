package queue

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// endOf returns how a lease ended, by etcd's own history: the request that deleted
// the taken key, which was put at rev. An error means that it cannot be known: etcd
// compacted its history, or does not answer.
func (q *store) endOf(ctx context.Context, taken, id string, rev int64) (end item.Ending, err error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), requestTimeout)
	defer cancel()
	ended := item.Ended{Keys: q.keys, ID: id, Key: taken}
	for resp := range q.claims.Etcd().Watch(ctx, taken, clientv3.WithRev(rev+1)) {
		if err := resp.Err(); err != nil {
			return end, err
		}
		if len(resp.Events) > 0 {
			ended.Rev = resp.Events[0].Kv.ModRevision
			break
		}
	}
	if ended.Rev == 0 {
		return end, fmt.Errorf("no event says how the lease ended: %w", context.Cause(ctx))
	}
	resp, err := core.Of(q.claims).KV().Txn(ctx).Then(txn.OpsOf(ended.Build())...).Commit()
	if err != nil {
		return end, err
	}
	return ended.Judge((*pb.TxnResponse)(resp))
}

// left returns the state in which the request that ended a lease left the item.
func (q *store) left(ctx context.Context, end item.Ending) (item.State, error) {
	resp, err := q.answer(ctx, end.Left())
	if err != nil {
		return item.State{}, err
	}
	return end.JudgeLeft(resp)
}

// lost returns why a delivery is over whose hold another request has ended.
func lost(end item.Ending) error {
	switch end.Verb {
	case item.VerbComplete:
		return ErrCompleted
	case item.VerbCancel:
		return cancelled(end.Notice)
	}
	return ErrSuperseded
}

// cancelled is why a delivery is over whose item was cancelled.
func cancelled(n item.Notice) error {
	if n.Why == "" {
		return fmt.Errorf("%w by %s", ErrCancelled, n.By)
	}
	return fmt.Errorf("%w by %s: %s", ErrCancelled, n.By, n.Why)
}
