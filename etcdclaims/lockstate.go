package etcdclaims

import (
	"context"

	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lockState is what is known of a key.
type lockState struct {
	holder holder
	kv     *mvccpb.KeyValue
}

// fence returns the fence of the lock.
func (s lockState) fence() int64 { return s.holder.fence(s.kv.ModRevision) }

func (s lockState) ownedBy(owner string) bool {
	return s.kv != nil && s.holder.Kind == kindLock && s.holder.Owner == owner
}

// outdated reports whether a raised epoch has ended the lock, as it ends all that
// was before it. The key is held by nobody then, until the lock's lease ends.
func (s lockState) outdated(e *txn.Epoch) bool { return s.holder.Epoch != e.Value }

// same is the condition that the state has not changed.
func (s lockState) same(l layout, key string) []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(l.own(key)), "=", s.kv.ModRevision),
		clientv3.Compare(clientv3.LeaseValue(l.own(key)), "=", s.kv.Lease),
	}
}

// read returns the holder of the key.
func (k Locks) read(ctx context.Context, key string) (lockState, error) {
	l := k.c.store.layout
	resp, err := k.c.read(ctx, clientv3.OpGet(l.own(key)), clientv3.OpGet(l.epoch()))
	if err != nil {
		return lockState{}, err
	}
	if err := k.c.store.learnEpoch(resp.Responses[1].GetResponseRange().Kvs, resp.Header.Revision); err != nil {
		return lockState{}, err
	}
	kvs := resp.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return lockState{}, nil
	}
	h, err := decodeHolder(kvs[0].Value)
	if err != nil {
		h = holder{} // somebody's, but nobody's whom we know
	}
	return lockState{holder: h, kv: kvs[0]}, nil
}
