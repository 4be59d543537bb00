package queue

import (
	"context"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// retention is the lease on which tombstones are: a new one now and then, so that no
// lease has too many keys, and each lasts for a given time at least.
type retention struct {
	lasts time.Duration

	mu     sync.Mutex
	asking *shared // a request for a new one is under way, or nil
	id     clientv3.LeaseID
	from   clock.Reading // before it was granted
	left   int
}

// slice is for how long tombstones are put on a lease. It is longer than etcd may take to grant one.
func (r *retention) slice() time.Duration { return max(r.lasts/10, requestTimeout) + time.Second }

// deadline is what ends: a Delivery.
type deadline interface {
	Done() <-chan struct{}
	Err() error
}

// noteFor is how long the note of an adopted lease lasts that it was the one that
// completed its item: longer than a call tries again.
const noteFor = time.Minute

// tombstonesPerLease bounds what ends at once: the end of a lease with many keys
// stalls etcd.
const tombstonesPerLease = 8192

// longestRetention is below the longest lease that etcd grants, 285 years.
const longestRetention = 100 * 365 * 24 * time.Hour

func (r *retention) init(lasts time.Duration) { r.lasts = min(lasts, longestRetention) }

// forget makes the next tombstone have a new lease, if id is the present one.
func (r *retention) forget(id clientv3.LeaseID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.id == id {
		r.id = clientv3.NoLease
	}
}

// lease returns the present lease, or asks etcd for a new one. Callers wait for the
// one that asks, and fail with it. They wait no longer than for their ctx, and for the end of
// l.
func (r *retention) lease(ctx context.Context, q *store, l deadline) (clientv3.LeaseID, error) {
	for {
		id, asking, mine := r.present(q.clock.Now())
		switch {
		case id != clientv3.NoLease:
			return id, nil
		case mine:
			err := r.grant(ctx, q)
			r.mu.Lock()
			r.asking = nil
			r.mu.Unlock()
			if asking.end(ctx, err); err != nil {
				return clientv3.NoLease, err
			}
		default:
			if err := asking.wait(ctx, l.Done()); err != nil {
				return clientv3.NoLease, err
			}
			if err := l.Err(); err != nil {
				return clientv3.NoLease, err
			}
		}
	}
}

// present returns the present lease. If there is none, it returns the request for a new
// one, and whether the caller has to make it.
func (r *retention) present(now clock.Reading) (id clientv3.LeaseID, asking *shared, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sure, wall := now.Since(r.from); r.id != clientv3.NoLease && r.left > 0 && max(sure, wall) < r.slice() {
		r.left--
		return r.id, nil, false
	}
	if mine = r.asking == nil; mine {
		r.asking = newShared()
	}
	return clientv3.NoLease, r.asking, mine
}

// grant asks etcd for a new lease.
func (r *retention) grant(ctx context.Context, q *store) error {
	from := q.clock.Now()
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), requestTimeout)
	defer cancel()
	id, err := core.Of(q.claims).GrantLease(ctx, r.lasts+r.slice()+time.Second)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.id, r.from, r.left = id, from, tombstonesPerLease
	return nil
}
