package retry

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/wire"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Read carries out operations that change nothing, at one revision, in at most limit. Within
// that it tries again what failed for a reason that may pass.
func Read(ctx context.Context, kv clientv3.KV, limit time.Duration, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return Within(ctx, limit, func(ctx context.Context) (*clientv3.TxnResponse, error) { return kv.Txn(ctx).Then(ops...).Commit() })
}

// Within sends a request that does no harm when it is carried out twice, in at most limit.
// Within that it tries again what failed for a reason that may pass.
func Within[R any](ctx context.Context, limit time.Duration, send func(context.Context) (R, error)) (resp R, err error) {
	limited, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), limit)
	defer cancel()
	for try := 0; ; try++ {
		if resp, err = send(limited); err == nil || !wire.MayPass(err) || !Pause(limited, try) {
			return resp, wire.Unanswered(ctx, err)
		}
	}
}
