package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The limits are what etcd does when nothing but claiming is asked of it, as
// many keys to a transaction as it allows.

// perTxn is how many nested transactions fit one, of the 128 operations that
// etcd allows by default.
const perTxn = 127

// flock is how many keys one worker of a limit claims at a time, and how many
// workers there are, in place of n goroutines with a key each.
func flock(n int) (workers, keys int) {
	workers = max(n/perTxn, min(n, 2)) // two under way keep etcd busy between a reply and the next request
	return workers, min(n/workers, perTxn)
}

// cycleNested claims each key if it is absent, on a lease, with an identity in
// it; and deletes it if it is still that.
func cycleNested(ctx context.Context, st *stage, n int) (contender, error) {
	return limit(ctx, st, n, claimNested, freeNested)
}

// cycleBare puts and deletes without a condition.
func cycleBare(ctx context.Context, st *stage, n int) (contender, error) {
	return limit(ctx, st, n, putBare, deleteBare)
}

// A limiter sends one transaction for the keys, and returns its revision.
type limiter func(ctx context.Context, etcd *clientv3.Client, keys []string, lease clientv3.LeaseID, rev int64) (int64, error)

func limit(ctx context.Context, st *stage, n int, claim, free limiter) (contender, error) {
	s, err := share(st)
	if err != nil {
		return nil, err
	}
	all, err := session(ctx, s.etcd)
	if err != nil {
		hangUp(s.etcd)
		return nil, err
	}
	workers, each := flock(n)
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
			rev, err := claim(ctx, s.etcd, keys[who], all.Lease(), 0)
			if err == nil {
				_, err = free(ctx, s.etcd, keys[who], all.Lease(), rev)
			}
			return err
		},
		shut: func() { _ = all.Close(); hangUp(s.etcd) },
	}, nil
}

func claimNested(ctx context.Context, etcd *clientv3.Client, keys []string, lease clientv3.LeaseID, _ int64) (int64, error) {
	return nested(ctx, etcd, keys, func(key string) clientv3.Op {
		return clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
			[]clientv3.Op{clientv3.OpPut(key, uuid.NewString(), clientv3.WithLease(lease))}, nil)
	})
}

func freeNested(ctx context.Context, etcd *clientv3.Client, keys []string, _ clientv3.LeaseID, rev int64) (int64, error) {
	return nested(ctx, etcd, keys, func(key string) clientv3.Op {
		return clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", rev)},
			[]clientv3.Op{clientv3.OpDelete(key)}, nil)
	})
}

// nested sends an operation for each key, all of which must hold.
func nested(ctx context.Context, etcd *clientv3.Client, keys []string, op func(key string) clientv3.Op) (int64, error) {
	resp, err := many(ctx, etcd, keys, op)
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

func putBare(ctx context.Context, etcd *clientv3.Client, keys []string, _ clientv3.LeaseID, _ int64) (int64, error) {
	return bare(ctx, etcd, keys, func(key string) clientv3.Op { return clientv3.OpPut(key, uuid.NewString()) })
}

func deleteBare(ctx context.Context, etcd *clientv3.Client, keys []string, _ clientv3.LeaseID, _ int64) (int64, error) {
	return bare(ctx, etcd, keys, func(key string) clientv3.Op { return clientv3.OpDelete(key) })
}

func bare(ctx context.Context, etcd *clientv3.Client, keys []string, op func(key string) clientv3.Op) (int64, error) {
	resp, err := many(ctx, etcd, keys, op)
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}

func many(ctx context.Context, etcd *clientv3.Client, keys []string, op func(key string) clientv3.Op) (*clientv3.TxnResponse, error) {
	ops := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		ops[i] = op(key)
	}
	return etcd.Txn(ctx).Then(ops...).Commit()
}
