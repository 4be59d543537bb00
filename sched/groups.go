package sched

import (
	"context"
	"iter"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Groups yields the names of the groups under the client's prefix in which an owner
// has registered a job, in no particular order. It reads two keys for each group, and
// one more at the end. A passthrough client has none. For a group whose key cannot be decoded
// Groups yields an error, and continues. Any other error ends the sequence.
func Groups(ctx context.Context, claims *etcdclaims.Client) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		fail := func(err error) bool {
			return yield("", errtext.Wrap("sched: list the groups", txn.Denied(attach.Of(claims).Explain(err))))
		}
		if err := passthrough.Check(claims); err != nil {
			fail(err)
			return
		}
		if claims.Passthrough() {
			return
		}
		jobOf := func(root string) clientv3.Op {
			return clientv3.OpGet(tick.KeysUnder(root).Specs(), clientv3.WithPrefix(), clientv3.WithLimit(1))
		}
		for kv, err := range retry.Subtrees(ctx, core.Of(claims).KV(), readTime, claims.Prefix()+"sched/", jobOf) {
			if err != nil {
				fail(err)
				return
			}
			sp, err := decode[spec](string(kv.Key), kv.Value)
			if err != nil && !fail(err) || err == nil && !yield(sp.Group, nil) {
				return
			}
		}
	}
}

// Group returns the name of the scheduler's group: Config.Group.
func (s *Scheduler) Group() string { return s.cfg.Group }
