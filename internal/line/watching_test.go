package line

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// watching is a watch.
type watching struct {
	key, end string
	stream   string
	rev      int64
	news     chan clientv3.WatchResponse
	ctx      context.Context
}

// watcher begins the watches of a world.
type watcher struct {
	clientv3.Watcher
	w *world
}

func (f watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	md, _ := metadata.FromOutgoingContext(ctx)
	op := clientv3.OpGet(key, opts...)
	g := &watching{
		key: key, end: string(op.RangeBytes()), stream: append(md.Get("etcdclaims-stream"), "")[0],
		rev: op.Rev(), news: make(chan clientv3.WatchResponse, 8), ctx: ctx,
	}
	f.w.mu.Lock()
	hangs := f.w.hangs
	f.w.mu.Unlock()
	if hangs != nil && hangs(g.stream) {
		<-ctx.Done()
		close(g.news)
		return g.news
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.watches = append(f.w.watches, g)
	return g.news
}

// watched lists the keys that are watched, and since when.
func (w *world) watched() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, g := range w.watches {
		if g.ctx.Err() == nil {
			all = append(all, strings.TrimPrefix(g.key, layout.Prefix))
		}
	}
	return strings.Join(all, ", ")
}

// tells has all watches deliver an event, whatever they are of.
func (w *world) tells(kind mvccpb.Event_EventType, kv *mvccpb.KeyValue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.watches {
		g.news <- clientv3.WatchResponse{Events: []*clientv3.Event{{Type: kind, Kv: kv}}}
	}
}

// breaks ends all watches.
func (w *world) breaks() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.watches {
		close(g.news)
	}
	w.watches = nil
}
