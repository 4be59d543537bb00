package retry

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Read carries out operations that change nothing, at one revision, as InParts does. It tries each
// request again for at most limit while that fails for a reason that may pass.
func Read(ctx context.Context, kv clientv3.KV, limit time.Duration, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return InParts(ops, func(ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
		return Within(ctx, limit, func(ctx context.Context) (*clientv3.TxnResponse, error) { return kv.Txn(ctx).Then(ops...).Commit() })
	})
}

// Get is Read of one operation.
func Get(ctx context.Context, kv clientv3.KV, limit time.Duration, op clientv3.Op) (*clientv3.GetResponse, error) {
	resp, err := InParts([]clientv3.Op{op}, func(ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
		got, err := get(ctx, kv, limit, ops[0])
		if err != nil {
			return nil, err
		}
		return &clientv3.TxnResponse{Header: got.Header, Responses: []*pb.ResponseOp{ofRange((*pb.RangeResponse)(got))}}, nil
	})
	if err != nil {
		return nil, err
	}
	return txn.Read(resp, 0), nil
}

// Within sends a request that does no harm when it is carried out twice, in at most limit.
// Within that it tries again what failed for a reason that may pass.
func Within[R any](ctx context.Context, limit time.Duration, send func(context.Context) (R, error)) (resp R, err error) {
	limited, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), limit)
	defer cancel()
	for try := 0; ; try++ {
		if resp, err = send(limited); err == nil || !txn.MayPass(err) || !Pause(limited, try) {
			return resp, txn.Unanswered(ctx, err)
		}
	}
}
