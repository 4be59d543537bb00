package txn

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// leader has the metadata by which a request fails at once if there is no leader.
var leader = clientv3.WithRequireLeader(context.Background())

// leading is a context without metadata of its own, with that of leader.
type leading struct{ context.Context }

// Value returns a value of the context, or what leader has.
func (l leading) Value(key any) any {
	if v := l.Context.Value(key); v != nil {
		return v
	}
	return leader.Value(key)
}

// WithLeader is clientv3.WithRequireLeader, which makes metadata anew for each request.
func WithLeader(ctx context.Context) context.Context {
	if _, has := metadata.FromOutgoingContext(ctx); has {
		return clientv3.WithRequireLeader(ctx)
	}
	return leading{ctx}
}
