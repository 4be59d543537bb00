package etcdclaims

import (
	"context"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"
)

// beginWatch begins a watch. It returns when etcd has created it, or with one
// that has ended if that took too long: nobody may be deaf because etcd does not
// answer.
//
// clientv3 opens one stream for all watches with the same metadata, which stays
// with its member, even if that member hangs for ever. If a watch cannot be
// created though etcd answers other requests, that is what has happened: then the
// watches of this client begin anew, on another stream.
func (c *Client) beginWatch(ctx context.Context, key string, opts ...clientv3.OpOption) (news clientv3.WatchChan, stop context.CancelFunc, begun bool) {
	stream, t0 := c.watchStream.Load(), time.Now()
	if stream > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, "etcdclaims-stream", strconv.FormatInt(stream, 10))
	}
	ctx, stop = context.WithCancel(clientv3.WithRequireLeader(ctx))
	late := time.AfterFunc(c.store.timeout, stop)
	news = c.etcd.Watch(ctx, key, opts...)
	begun = late.Stop()
	if !begun && c.outage.answeredSince(t0) && c.watchStream.CompareAndSwap(stream, stream+1) {
		c.log.Debug("watch stream hangs; a new one is opened", zap.String("key", key))
		c.store.generation.advance()
	}
	return news, stop, begun
}
