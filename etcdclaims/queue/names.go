package queue

import (
	"context"
	"fmt"
	"iter"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Names yields the names of all queues under the client's prefix, in no particular order.
// A queue that is empty now is included. Names reads two keys for each queue, and a few
// more; [Active] reads less. It leaves out queues that a newer version of this package
// made. An error ends the iteration.
func Names(ctx context.Context, claims *etcdclaims.Client) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := passthrough.Refuse(claims); err != nil {
			yield("", err)
			return
		}
		specOf := func(root string) clientv3.Op { return clientv3.OpGet(item.SpecBelow(root)) }
		for kv, err := range retry.Subtrees(ctx, core.Of(claims).KV(), requestTimeout, claims.Prefix()+"queue/", specOf) {
			if err != nil {
				yield("", fmt.Errorf("list the queues: %w", txn.Denied(err)))
				return
			}
			if s, err := item.Decode[spec](kv.Key, kv.Value); err == nil && !yield(s.Name, nil) {
				return
			}
		}
	}
}
