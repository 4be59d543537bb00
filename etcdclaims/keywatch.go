package etcdclaims

import (
	"context"
	"strconv"
	"time"

	"github.com/etcdclaims/claims/internal/feed"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// beginWatch begins a watch as feed.Open does, within the timeout of requests.
//
// If a watch cannot be created though etcd answers other requests, the member that has
// the stream of watches hangs. Then all watches of this client begin anew, on another
// stream.
func (c *Client) beginWatch(ctx context.Context, key string, opts ...clientv3.OpOption) (news clientv3.WatchChan, stop context.CancelFunc, begun bool) {
	stream, t0 := c.watchStream.Load(), time.Now()
	if stream > 0 {
		ctx = feed.OnStream(ctx, strconv.FormatInt(stream, 10))
	}
	news, stop, begun = feed.Open(ctx, c.etcd, c.store.timeout, key, opts...)
	if !begun && c.outage.answeredSince(t0) && c.watchStream.CompareAndSwap(stream, stream+1) {
		c.log.Debug("watch stream hangs; a new one is opened", zap.String("key", key))
		c.store.generation.advance()
	}
	return news, stop, begun
}
