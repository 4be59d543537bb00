package etcdguard

import (
	"context"

	"github.com/etcdclaims/claims/fencing"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// NewGate returns a gate that asks etcd whether a token is of the present owner
// of its key. It is stricter than other gates: a token is refused as soon as
// there is a newer one, or its claim was released, whether or not that was shown
// here; and it remembers nothing, since etcd does.
//
// It is an early reject: the answer is of the past when it arrives. Write to etcd
// through NewKV, with Bearer; for what is elsewhere use a gate that stands beside
// it. The prefix is that of the claims, "" for the default. NewGate panics if kv
// is nil.
func NewGate(kv clientv3.KV, prefix string) fencing.Gate {
	if kv == nil {
		panic("etcdguard: NewGate needs a KV")
	}
	sender := plain(kv)
	return fencing.GateFunc(func(ctx context.Context, t fencing.Token) error {
		g := newGuard(Bearer(prefix, t))
		if err := g.over(); err != nil {
			return err
		}
		_, err := g.commit(ctx, sender, nil)
		return err
	})
}
