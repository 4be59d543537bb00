package sched

import (
	"context"
	"iter"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Groups yields the names of the groups under the client's prefix in which an owner
// has registered a job, in no particular order. It reads one key for each group, and
// one more at the end. A passthrough client has none. The sequence ends after the
// first error.
func Groups(ctx context.Context, claims *etcdclaims.Client) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if claims.Passthrough() {
			return
		}
		root := claims.Prefix() + "sched/"
		const digest = 32 // bytes of keyspace.Digest
		for from := root; ; {
			reading, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
			resp, err := claims.Etcd().Get(reading, from, clientv3.WithRange(keyspace.RangeEnd(root)), clientv3.WithLimit(1), clientv3.WithKeysOnly())
			if err == nil && len(resp.Kvs) > 0 && len(resp.Kvs[0].Key) > len(root)+digest {
				k := keys{string(resp.Kvs[0].Key[:len(root)+digest+1])}
				from = keyspace.RangeEnd(k.root)
				resp, err = claims.Etcd().Get(reading, k.specs(), clientv3.WithPrefix(), clientv3.WithLimit(1))
			} else if err == nil {
				cancel()
				return
			}
			cancel()
			if err != nil {
				yield("", errtext.Wrap("sched: list the groups", denial(err)))
				return
			}
			for _, kv := range resp.Kvs {
				sp, err := decode[spec](string(kv.Key), kv.Value)
				if err != nil {
					err = errtext.Wrap("sched: list the groups", err)
				}
				if !yield(sp.Group, err) || err != nil {
					return
				}
			}
		}
	}
}

// Group returns the name of the scheduler's group: Config.Group.
func (s *Scheduler) Group() string { return s.cfg.Group }
