package line

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/feed"
	"github.com/etcdclaims/claims/internal/outage"
	"github.com/etcdclaims/claims/internal/store"
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

// Watches begins the watches of a client, and bounds those of its waiters. Its methods are safe for concurrent use.
type Watches struct {
	etcd   *clientv3.Client
	store  *store.Store
	outage *outage.Outage
	log    *zap.Logger

	stream            atomic.Int64  // numbers its streams
	creations, places chan struct{} // each holds an element for each that there is
}

// NewWatches returns the watches of a client, which has none.
func NewWatches(etcd *clientv3.Client, st *store.Store, o *outage.Outage, log *zap.Logger) *Watches {
	return &Watches{
		etcd: etcd, store: st, outage: o, log: log,
		creations: make(chan struct{}, mostCreations), places: make(chan struct{}, mostPlaceWatches),
	}
}

// Begin begins a watch as feed.Open does, within the timeout of requests.
//
// If a watch cannot be created though etcd answers other requests, the member that has
// the stream of watches hangs. Then all watches of this client begin anew, on another
// stream.
func (w *Watches) Begin(ctx context.Context, key string, opts ...clientv3.OpOption) (
	news clientv3.WatchChan, stop context.CancelFunc, begun bool,
) {
	stream, t0 := w.stream.Load(), clock.Mono()
	if stream > 0 {
		ctx = feed.OnStream(ctx, strconv.FormatInt(stream, 10))
	}
	news, stop, begun = feed.Open(ctx, w.etcd, w.store.Timeout(), key, opts...)
	if !begun && w.outage.AnsweredSince(t0) && w.stream.CompareAndSwap(stream, stream+1) {
		w.log.Debug("watch stream hangs; a new one is opened", zap.String("etcd_key", key))
		w.store.Generation.Advance()
	}
	return news, stop, begun
}

// BeginInTurn begins a watch of one key for a call that waits. Not more than mostCreations begin at a time.
func (w *Watches) BeginInTurn(ctx context.Context, key string) (news clientv3.WatchChan, stop context.CancelFunc) {
	select {
	case w.creations <- struct{}{}:
	case <-ctx.Done():
		closed := make(chan clientv3.WatchResponse)
		close(closed)
		return closed, func() {}
	}
	defer func() { <-w.creations }()
	news, stop, _ = w.Begin(ctx, key)
	return news, stop
}
