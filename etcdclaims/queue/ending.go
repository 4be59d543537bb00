package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// endOf returns how a lease ended, by etcd's own history: the request that deleted
// the taken key, which was put at rev, and the revision of that request. The verb is
// "complete" if the item was removed with it, and else what its place says. An error
// means that it cannot be known: etcd compacted its history, or does not answer.
func (q *Queue) endOf(ctx context.Context, taken, id string, rev int64) (verb string, at int64, err error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), requestTimeout)
	defer cancel()
	for resp := range q.claims.Etcd().Watch(ctx, taken, clientv3.WithRev(rev+1)) {
		if err := resp.Err(); err != nil {
			return "", 0, err
		}
		if len(resp.Events) > 0 {
			at = resp.Events[0].Kv.ModRevision
			break
		}
	}
	if at == 0 {
		return "", 0, fmt.Errorf("no event says how the lease ended: %w", context.Cause(ctx))
	}
	etcd := q.claims.Etcd()
	item, err := etcd.Get(ctx, q.keys.item(id), clientv3.WithRev(at))
	if err != nil {
		return "", 0, err
	}
	if len(item.Kvs) == 0 {
		return "complete", at, nil
	}
	if c, err := decode[content](item.Kvs[0].Key, item.Kvs[0].Value); err == nil && c.Done != nil && item.Kvs[0].ModRevision == at {
		return "complete", at, nil
	}
	where, err := etcd.Get(ctx, q.keys.place(id), clientv3.WithRev(at))
	if err != nil {
		return "", 0, err
	}
	if len(where.Kvs) == 0 || where.Kvs[0].ModRevision != at {
		return "heartbeat", at, nil // it was moved to another session
	}
	p, err := decode[place](where.Kvs[0].Key, where.Kvs[0].Value)
	if err != nil {
		return "", 0, err
	}
	return p.Verb, at, nil
}

// retention is the lease on which tombstones are: a new one now and then, so that
// none has too many keys, and each lasts for Config.Retention at least.
type retention struct {
	turn chan struct{} // capacity 1: whoever fills it has the fields below
	id   clientv3.LeaseID
	end  time.Time // until when tombstones are put on it
	left int
}

// tombstonesPerLease bounds what ends at once: the end of a lease with many keys
// stalls etcd.
const tombstonesPerLease = 8192

// lease returns the lease for a tombstone, or none if tombstones are not kept, or
// etcd has no space for a lease: then the id is forgotten at once. Callers wait for
// the one that asks etcd, but no longer than their ctx.
func (r *retention) lease(ctx context.Context, q *Queue) (clientv3.LeaseID, error) {
	if q.cfg.Retention < 0 {
		return clientv3.NoLease, nil
	}
	id, err := r.grant(ctx, q)
	if errors.Is(err, rpctypes.ErrNoSpace) {
		q.log.Warn("completed item forgotten at once, etcd has no space for its id")
		return clientv3.NoLease, nil
	}
	return id, err
}

// forget makes the next tombstone have a new lease, if id is the present one.
func (r *retention) forget(id clientv3.LeaseID) {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if r.id == id {
		r.id = clientv3.NoLease
	}
}

// grant returns the present lease, or asks etcd for a new one.
func (r *retention) grant(ctx context.Context, q *Queue) (clientv3.LeaseID, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return clientv3.NoLease, context.Cause(ctx)
	}
	if r.id != clientv3.NoLease && r.left > 0 && time.Now().Before(r.end) {
		r.left--
		return r.id, nil
	}
	slack := q.cfg.Retention/10 + time.Second
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), requestTimeout)
	defer cancel()
	granted, err := q.claims.Etcd().Grant(ctx, int64((q.cfg.Retention+slack+time.Second-1)/time.Second)+1)
	if err != nil {
		return clientv3.NoLease, err
	}
	r.id, r.end, r.left = granted.ID, time.Now().Add(slack), tombstonesPerLease-1
	return r.id, nil
}
