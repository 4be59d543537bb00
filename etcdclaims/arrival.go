package etcdclaims

import (
	"context"
	"path"
	"slices"
	"time"

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
	t := c.keys.term(f.a.key)
	if t == nil {
		return
	}
	c.localMu.Lock()
	if t.readingArrival {
		c.localMu.Unlock()
		return
	}
	t.readingArrival = true
	there := slices.Clone(t.localWaiters)
	c.localMu.Unlock()
	defer func() {
		c.localMu.Lock()
		t.readingArrival = false
		c.localMu.Unlock()
	}()
	line := c.store.layout.waiting(f.a.key)
	resp, err := c.store.Do(ctx, txn.Request{In: txn.Then(clientv3.OpGet(line, clientv3.WithPrefix(), clientv3.WithKeysOnly()))})
	if err != nil {
		return // without an arrival it gives way
	}
	foreign := func(kv *mvccpb.KeyValue) bool { return c.waiter(path.Base(string(kv.Key))) == nil }
	if !slices.ContainsFunc(resp.Responses[0].GetResponseRange().Kvs, foreign) {
		c.recordArrival(there, resp.Header.Revision)
		return
	}
	c.localMu.Lock()
	defer c.localMu.Unlock()
	var late []*localWaiter
	t.localWaiters = slices.DeleteFunc(t.localWaiters, func(o *localWaiter) bool {
		if o.arrival > 0 || !slices.Contains(there, o) {
			return false
		}
		o.last = true
		late = append(late, o)
		return true
	})
	c.requeueLocked(late)
}

// localWaitersOf returns the local waiters of a term. recordArrival notes that they
// came before a revision.
func (c *Client) localWaitersOf(t *term) []*localWaiter {
	c.localMu.Lock()
	defer c.localMu.Unlock()
	if len(t.localWaiters) == 0 {
		return nil
	}
	return slices.Clone(t.localWaiters)
}

func (c *Client) recordArrival(fs []*localWaiter, rev int64) {
	if len(fs) == 0 {
		return
	}
	c.localMu.Lock()
	defer c.localMu.Unlock()
	for _, f := range fs {
		if f.arrival == 0 {
			f.arrival = rev
		}
	}
}

func (c *Client) hasArrival(f *localWaiter) bool {
	c.localMu.Lock()
	defer c.localMu.Unlock()
	return f.arrival > 0
}

// cameFirst reports whether a local waiter is known to have come before a place in
// line.
func (c *Client) cameFirst(f *localWaiter, p place) bool {
	c.localMu.Lock()
	defer c.localMu.Unlock()
	return f.arrival > 0 && f.arrival < p.Rev
}
