package etcdclaims

import (
	"context"
	"strconv"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/feed"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Thousands of callers of one client may wait. All their watches share one stream, which
// creates one after the other, and each takes memory here and in etcd.
const (
	// mostCreations is how many watches of waiters are created at a time. More would take so
	// long that the stream seems to hang.
	mostCreations = 64
	// mostPlaceWatches is how many waiters watch the place before their own. A waiter that
	// has no watch is handed the key all the same. That the places before its own are gone,
	// without a hand-over, it finds out when its session is renewed.
	mostPlaceWatches = 1024
)

// waiterWatches bounds the watches of waiters.
type waiterWatches struct {
	creations, places chan struct{} // each holds an element for each that there is
}

func newWaiterWatches() waiterWatches {
	return waiterWatches{creations: make(chan struct{}, mostCreations), places: make(chan struct{}, mostPlaceWatches)}
}

// beginWatch begins a watch as feed.Open does, within the timeout of requests.
//
// If a watch cannot be created though etcd answers other requests, the member that has
// the stream of watches hangs. Then all watches of this client begin anew, on another
// stream.
func (c *Client) beginWatch(ctx context.Context, key string, opts ...clientv3.OpOption) (news clientv3.WatchChan, stop context.CancelFunc, begun bool) {
	stream, t0 := c.watchStream.Load(), clock.Mono()
	if stream > 0 {
		ctx = feed.OnStream(ctx, strconv.FormatInt(stream, 10))
	}
	news, stop, begun = feed.Open(ctx, c.etcd, c.store.Timeout(), key, opts...)
	if !begun && c.outage.AnsweredSince(t0) && c.watchStream.CompareAndSwap(stream, stream+1) {
		c.log.Debug("watch stream hangs; a new one is opened", zap.String("etcd_key", key))
		c.store.Generation.Advance()
	}
	return news, stop, begun
}
