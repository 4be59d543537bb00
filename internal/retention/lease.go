package retention

import (
	"sync/atomic"

	"github.com/etcdclaims/claims/internal/clock"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Lease is a lease that keys are on. Its methods are safe for concurrent use. Those without a result
// do nothing for a nil lease.
type Lease struct {
	id   clientv3.LeaseID // NoLease: for ever. Set before others know the lease, as from is
	from clock.Reading    // before it was granted

	keys    atomic.Int64 // put on it, less those known to have left
	writers atomic.Int64 // callers that may yet put a key on it
	unsure  atomic.Bool  // an outcome is unknown, and stays so
}

// ID is the lease's own, NoLease for keys that are kept for ever.
func (l *Lease) ID() clientv3.LeaseID { return l.id }

// Keys returns how many keys are counted on the lease.
func (l *Lease) Keys() int64 { return l.keys.Load() }

// Count counts n keys more on the lease, or fewer.
func (l *Lease) Count(n int64) { l.keys.Add(n) }

// Enter adds a writer to those that there are, and returns the lease. Leases.Get adds the first under
// the mutex of the leases, so that a lease that is not current any more gets no new ones.
func (l *Lease) Enter() *Lease {
	if l != nil {
		l.writers.Add(1)
	}
	return l
}

// Leave ends what Enter or Leases.Get began. put reports whether there is one key more on the lease.
func (l *Lease) Leave(put bool) {
	if l == nil {
		return
	}
	if put {
		l.keys.Add(1)
	}
	l.writers.Add(-1)
}

// Doubt notes that a key may yet be put on the lease.
func (l *Lease) Doubt() {
	if l != nil {
		l.unsure.Store(true)
	}
}
