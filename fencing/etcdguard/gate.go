package etcdguard

import (
	"context"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// NewGate returns a gate that asks etcd whether a token belongs to the present
// owner of its key. prefix is the Config.Prefix of the claims; "" means the
// default.
//
// The gate is stricter than other gates: it refuses a token as soon as a newer
// one exists or the claim was released, even if it has never seen the newer
// token. It remembers nothing, because etcd does.
//
// The gate is an early reject: its answer can be out of date when it arrives. For
// writes to etcd use NewKV with Bearer. For other resources use a gate that is
// part of the write.
//
// The gate is safe for concurrent use. NewGate panics if kv is nil.
func NewGate(kv clientv3.KV, prefix string) fencing.Gate {
	if kv == nil {
		panic("etcdguard: NewGate needs a KV")
	}
	sender := txn.NewSender(kv)
	return fencing.GateFunc(func(ctx context.Context, t fencing.Token) error {
		g := newGuard(Bearer(prefix, t))
		if err := g.over(); err != nil {
			return err
		}
		return g.ask(ctx, sender)
	})
}
