package feed

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// Open begins a watch that requires a leader, and returns when etcd has created it. If
// that takes longer than the timeout, the watch has ended, and begun is false: a member
// that hangs would block the caller for ever. stop ends the watch; each caller calls it.
func Open(
	ctx context.Context, etcd clientv3.Watcher, timeout time.Duration, key string, opts ...clientv3.OpOption,
) (news clientv3.WatchChan, stop context.CancelFunc, begun bool) {
	ctx, stop = context.WithCancel(clientv3.WithRequireLeader(ctx))
	late := time.AfterFunc(timeout, stop)
	news = etcd.Watch(ctx, key, opts...)
	return news, stop, late.Stop()
}

// OnStream returns a context for watches on the stream of a name. clientv3 opens one
// stream for all watches with the same metadata. The stream stays with its member, even
// if that member hangs for ever.
func OnStream(ctx context.Context, name string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "etcdclaims-stream", name)
}

// Streams opens the watches of one owner. After a watch that could not begin it uses a
// new stream, which may be another member's. The zero value is ready for use.
type Streams struct {
	replaced atomic.Int64
}

// Open is like the function Open.
func (s *Streams) Open(
	ctx context.Context, etcd clientv3.Watcher, timeout time.Duration, key string, opts ...clientv3.OpOption,
) (news clientv3.WatchChan, stop context.CancelFunc) {
	n := s.replaced.Load()
	if n > 0 {
		ctx = OnStream(ctx, strconv.FormatInt(n, 10))
	}
	news, stop, begun := Open(ctx, etcd, timeout, key, opts...)
	if !begun {
		s.replaced.CompareAndSwap(n, n+1)
	}
	return news, stop
}
