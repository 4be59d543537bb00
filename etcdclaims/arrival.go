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
	t := c.keys.Term(f.Attempt.user)
	if t == nil {
		return
	}
	there, ok := c.local.BeginReading(&t.local)
	if !ok {
		return
	}
	defer c.local.EndReading(&t.local)
	line := c.store.Layout.Waiting(f.Attempt.user)
	resp, err := c.store.ReadAll(ctx, clientv3.OpGet(line, clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	if err != nil {
		return // without an arrival it gives way
	}
	foreign := func(kv *mvccpb.KeyValue) bool { return c.waiters.get(protocol.PlacedID(kv.Key)) == nil }
	if !slices.ContainsFunc(txn.Kvs(resp, 0), foreign) {
		c.local.RecordArrival(there, resp.Header.Revision)
		return
	}
	c.local.GiveWay(&t.local, there)
}
