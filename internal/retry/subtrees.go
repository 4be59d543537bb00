package retry

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Subtrees yields one value of each prefix one level below root that has keys: the first
// that the operation of returns finds, if there is one, and without an operation the first key,
// without its value. It reads two keys for each subtree, or one, however many that has, and one
// more at the end. A read takes at most timeout. An error is the last value.
func Subtrees(
	ctx context.Context, etcd clientv3.KV, timeout time.Duration, root string, of func(subtree string) clientv3.Op,
) iter.Seq2[*mvccpb.KeyValue, error] {
	first := func(op clientv3.Op) (*mvccpb.KeyValue, error) {
		resp, err := Within(ctx, timeout, func(ctx context.Context) (clientv3.OpResponse, error) { return etcd.Do(ctx, op) })
		if err != nil || len(resp.Get().Kvs) == 0 {
			return nil, err
		}
		return resp.Get().Kvs[0], nil
	}
	return func(yield func(*mvccpb.KeyValue, error) bool) {
		for from := root; ; {
			kv, err := first(clientv3.OpGet(from, clientv3.WithRange(keyspace.RangeEnd(root)), clientv3.WithLimit(1), clientv3.WithKeysOnly()))
			if kv == nil && err == nil {
				return
			}
			if err == nil {
				name, _, below := strings.Cut(string(kv.Key[len(root):]), "/")
				if from = string(kv.Key) + "\x00"; !below {
					continue // a key of another program
				}
				subtree := root + name + "/"
				from = keyspace.RangeEnd(subtree)
				if of != nil {
					kv, err = first(of(subtree))
				}
			}
			if (kv != nil || err != nil) && !yield(kv, err) || err != nil {
				return
			}
		}
	}
}
