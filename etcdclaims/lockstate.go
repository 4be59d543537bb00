package etcdclaims

import (
	"context"

	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lockState is the state of a key as this client read it.
type lockState struct {
	holder holder
	kv     *mvccpb.KeyValue

	deserted bool // it is the record of a shared key, and the last holders have died
}

// fence returns the fence of the lock.
func (s lockState) fence() int64 { return s.holder.fence(s.kv.ModRevision) }

func (s lockState) ownedBy(owner string) bool {
	return s.kv != nil && s.holder.Kind == kindLock && s.holder.Owner == owner
}

// outdated reports whether a raised epoch has ended the lock, as it ends all that
// was before it. The key then stays held without an owner, until the lock's lease ends.
func (s lockState) outdated(e *txn.Epoch) bool { return s.holder.Epoch != e.Value }

// follows reports whether the key was held without a pause since it was read as before:
// so nothing has deleted it.
func (s lockState) follows(before lockState) bool {
	return s.kv != nil && s.kv.CreateRevision == before.kv.CreateRevision
}

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
	resp, err := k.c.read(ctx, clientv3.OpGet(l.own(key)), clientv3.OpGet(l.epoch()), clientv3.OpGet(l.sharers(key), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	if err != nil {
		return lockState{}, err
	}
	if err := k.c.store.learnEpoch(resp.Responses[1].GetResponseRange().Kvs, resp.Header.Revision); err != nil {
		return lockState{}, err
	}
	st := stateOf(firstKV(resp, 0))
	st.deserted = isShared(st.kv) && resp.Responses[2].GetResponseRange().Count == 0
	return st, nil
}

// stateOf returns the state of a key from the value that was read: nil if it is free.
func stateOf(own *mvccpb.KeyValue) lockState {
	if own == nil {
		return lockState{}
	}
	h, err := decodeHolder(own.Value)
	if err != nil {
		h = holder{} // the key has a holder, but its value cannot be read
	}
	return lockState{holder: h, kv: own}
}

// IsLocked reports whether the key is held, by a lock of any owner or by a
// claim.
func (k Locks) IsLocked(ctx context.Context, key string) (bool, error) {
	_, ok, err := k.Owner(ctx, key)
	return ok, err
}

// Owner returns the owner name of a lock, or the label of the client that holds
// a claim. ok is false if the key is free.
func (k Locks) Owner(ctx context.Context, key string) (owner string, ok bool, err error) {
	defer named("look up the owner of", key, &err)
	if err := k.c.checkKey(key); err != nil {
		return "", false, err
	}
	if k.c.Passthrough() {
		return "", false, nil
	}
	st, err := k.read(ctx, key)
	if err != nil || st.kv == nil || st.deserted {
		return "", false, err
	}
	return st.holder.Owner, true, nil
}
