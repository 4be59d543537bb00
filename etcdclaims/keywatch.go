package etcdclaims

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// beginWatch begins a watch. It returns when etcd has created it, or with one
// that has ended if that took too long: nobody may be deaf because etcd does not
// answer.
func (c *Client) beginWatch(ctx context.Context, key string, opts ...clientv3.OpOption) (news clientv3.WatchChan, stop context.CancelFunc, begun bool) {
	ctx, stop = context.WithCancel(clientv3.WithRequireLeader(ctx))
	late := time.AfterFunc(c.store.timeout, stop)
	news = c.etcd.Watch(ctx, key, opts...)
	return news, stop, late.Stop()
}
