package etcdclaims

import (
	"context"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// arrivalAfter is how long a local waiter without an arrival waits for the reply to
// another request before it asks etcd itself.
const arrivalAfter = 2 * time.Millisecond

// readArrival asks etcd for the arrival of the local waiters that there are now. If a
// waiter of another client is in line already, they join the line behind it.
func (c *Client) readArrival(ctx context.Context, f *localWaiter) {
	t := c.keys.term(f.a.user)
	if t == nil {
		return
	}
	there, ok := c.local.beginReading(&t.local)
	if !ok {
		return
	}
	defer c.local.endReading(&t.local)
	line := c.store.layout.Waiting(f.a.user)
	resp, err := c.store.readAll(ctx, clientv3.OpGet(line, clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	if err != nil {
		return // without an arrival it gives way
	}
	foreign := func(kv *mvccpb.KeyValue) bool { return c.waiters.get(protocol.PlacedID(kv.Key)) == nil }
	if !slices.ContainsFunc(txn.Kvs(resp, 0), foreign) {
		c.local.recordArrival(there, resp.Header.Revision)
		return
	}
	c.local.giveWay(&t.local, there)
}

// beginReading returns the local waiters for which the caller may ask etcd, unless
// another does that already. endReading must follow.
func (l *localLine) beginReading(q *localQueue) (there []*localWaiter, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.reading {
		return nil, false
	}
	q.reading = true
	return slices.Clone(q.waiters), true
}

func (l *localLine) endReading(q *localQueue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.reading = false
}

// giveWay sends those of some local waiters that have no arrival to the end of the line
// in etcd.
func (l *localLine) giveWay(q *localQueue, there []*localWaiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var late []*localWaiter
	q.waiters = slices.DeleteFunc(q.waiters, func(f *localWaiter) bool {
		if f.arrival > 0 || !slices.Contains(there, f) {
			return false
		}
		f.last = true
		late = append(late, f)
		return true
	})
	requeue(late)
}

// recordArrival notes that local waiters came before a revision.
func (l *localLine) recordArrival(fs []*localWaiter, rev int64) {
	if len(fs) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range fs {
		if f.arrival == 0 {
			f.arrival = rev
		}
	}
}

func (l *localLine) hasArrival(f *localWaiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return f.arrival > 0
}

// cameFirst reports whether a local waiter is known to have come before a place in
// line.
func (l *localLine) cameFirst(f *localWaiter, p protocol.Place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return f.arrival > 0 && f.arrival < p.Rev
}
