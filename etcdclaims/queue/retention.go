package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// retention is the lease on which tombstones are: a new one now and then, so that
// none has too many keys, and each lasts for a given time at least.
type retention struct {
	lasts time.Duration
	turn  chan struct{} // capacity 1: whoever fills it has the fields below
	id    clientv3.LeaseID
	end   time.Time // until when tombstones are put on it
	left  int
}

// noteFor is how long the note of an adopted lease lasts that it was the one that
// completed its item: longer than a call tries again.
const noteFor = time.Minute

// tombstonesPerLease bounds what ends at once: the end of a lease with many keys
// stalls etcd.
const tombstonesPerLease = 8192

func (r *retention) init(lasts time.Duration) { r.lasts, r.turn = lasts, make(chan struct{}, 1) }

// forget makes the next tombstone have a new lease, if id is the present one.
func (r *retention) forget(id clientv3.LeaseID) {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if r.id == id {
		r.id = clientv3.NoLease
	}
}

// lease returns the present lease, or asks etcd for a new one. Callers wait for the
// one that asks, but no longer than their ctx.
func (r *retention) lease(ctx context.Context, q *Queue) (clientv3.LeaseID, error) {
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
	slack := r.lasts/10 + time.Second
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), requestTimeout)
	defer cancel()
	id, err := q.claims.GrantLease(ctx, r.lasts+slack+time.Second)
	if err != nil {
		return clientv3.NoLease, err
	}
	r.id, r.end, r.left = id, time.Now().Add(slack), tombstonesPerLease-1
	return r.id, nil
}

// remembered reports whether the item's id is remembered once it is completed.
func (l *Lease) remembered() bool { return l.content.Given && l.q.cfg.Retention >= 0 }

// retention returns the leases for what is left of the item once it is completed:
// its tombstone, or the note by which an adopted lease knows that it was the one that
// completed it. It is nil if nothing is left.
func (l *Lease) retention() *retention {
	switch {
	case l.remembered():
		return &l.q.retained
	case l.by != "":
		return &l.q.noted
	}
	return nil
}

// tombstoneLease returns the lease for what is left of the item once it is completed.
// If etcd has no space for one the item's id is forgotten at once; but an adopted lease
// could not be told from others then, so its Complete fails.
func (l *Lease) tombstoneLease(ctx context.Context) (clientv3.LeaseID, error) {
	leases := l.retention()
	for try := 0; leases != nil; try++ {
		id, err := leases.lease(ctx, l.q)
		if errors.Is(err, rpctypes.ErrNoSpace) && l.by == "" {
			l.q.log.Warn("completed item forgotten at once, etcd has no space for its id")
			return clientv3.NoLease, nil
		}
		if err == nil || !passing(err) {
			return id, err
		}
		if ended := l.Err(); ended != nil {
			return clientv3.NoLease, ended
		}
		if !retry.Pause(ctx, try) {
			return clientv3.NoLease, fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
	return clientv3.NoLease, nil
}
