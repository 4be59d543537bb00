package deafness

import (
	"context"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// HungStream returns clients whose first stream of watches is that of a member that hangs:
// no watch on it begins. All other requests are answered, and watches on other streams
// work.
func HungStream(etcd claimtest.Etcd) claimtest.Etcd {
	return testclaims.EtcdFunc(func(tb testing.TB) *clientv3.Client {
		tb.Helper()
		c := etcd.Etcd(tb)
		c.Watcher = hungStream{c.Watcher}
		return c
	})
}

type hungStream struct{ clientv3.Watcher }

func (h hungStream) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	if md, _ := metadata.FromOutgoingContext(ctx); len(md.Get("etcdclaims-stream")) > 0 {
		return h.Watcher.Watch(ctx, key, opts...)
	}
	<-ctx.Done()
	news := make(chan clientv3.WatchResponse)
	close(news)
	return news
}
