package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The limit is what etcd does when nothing but claiming is asked of it, with as
// many keys in each transaction as it allows.

// perTxn is how many nested transactions fit into one, of the 128 operations that
// etcd allows by default.
const perTxn = 127

// cycleNested has few workers with many keys each, in place of n goroutines with
// one key each.
func cycleNested(ctx context.Context, st *stage, n int) (contender, error) {
	s, all, err := shareSession(ctx, st)
	if err != nil {
		return nil, err
	}
	workers := max(n/perTxn, min(n, 2)) // two under way keep etcd busy between a reply and the next request
	each := min(n/workers, perTxn)
	own := prefix()
	keys := make([][]string, workers)
	for who := range keys {
		keys[who] = names(fmt.Sprintf("%sown/key/%d/", own, who), each)
	}
	shape := st.shape(n)
	shape.Workers = workers
	return &driven{
		shape: shape, each: each, sent: s.requests, etcd: st.etcdTime(),
		step: func(ctx context.Context, who int) error {
			rev, err := claimNested(ctx, s.etcd, keys[who], all.Lease())
			if err == nil {
				err = freeNested(ctx, s.etcd, keys[who], rev)
			}
			return err
		},
		shut: func() { _ = all.Close(); hangUp(s.etcd) },
	}, nil
}

// claimNested claims each key that does not exist, on a lease, with a random value.
func claimNested(ctx context.Context, etcd *clientv3.Client, keys []string, lease clientv3.LeaseID) (rev int64, err error) {
	return nested(ctx, etcd, keys, func(key string) clientv3.Op {
		return clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
			[]clientv3.Op{clientv3.OpPut(key, uuid.NewString(), clientv3.WithLease(lease))}, nil)
	})
}

// freeNested deletes each key that was last put at the revision.
func freeNested(ctx context.Context, etcd *clientv3.Client, keys []string, rev int64) error {
	_, err := nested(ctx, etcd, keys, func(key string) clientv3.Op {
		return clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", rev)},
			[]clientv3.Op{clientv3.OpDelete(key)}, nil)
	})
	return err
}

// nested sends one transaction with an operation for each key, all of which must
// succeed.
func nested(ctx context.Context, etcd *clientv3.Client, keys []string, op func(key string) clientv3.Op) (rev int64, err error) {
	ops := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		ops[i] = op(key)
	}
	resp, err := etcd.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return 0, err
	}
	for i, r := range resp.Responses {
		if !r.GetResponseTxn().Succeeded {
			return 0, fmt.Errorf("the condition of %s does not hold", keys[i])
		}
	}
	return resp.Header.Revision, nil
}
