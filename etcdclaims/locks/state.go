package locks

import (
	"context"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// state is the state of a key as this client read it.
type state struct {
	holder protocol.Holder
	kv     *mvccpb.KeyValue

	deserted bool // it is the record of a shared key, and the last holders have died
}

// fence returns the fence of the lock.
func (s state) fence() int64 { return s.holder.Fence(s.kv.ModRevision) }

func (s state) ownedBy(owner string) bool {
	return s.kv != nil && s.holder.Kind == protocol.KindLock && s.holder.Owner == owner
}

// shared reports whether it is the record of a shared key.
func (s state) shared() bool {
	return s.kv != nil && s.kv.Lease == int64(clientv3.NoLease) && s.holder.Kind == protocol.KindShared
}

// outdated reports whether a raised epoch has ended the lock, as it ends all that
// was before it. The key then stays held without an owner, until the lock's lease ends.
func (s state) outdated(e *txn.Epoch) bool { return s.holder.Epoch != e.Value }

// follows reports whether the key was held without a pause since it was read as before:
// so nothing has deleted it.
func (s state) follows(before state) bool {
	return s.kv != nil && s.kv.CreateRevision == before.kv.CreateRevision
}

// same is the condition that the state has not changed.
func (s state) same(l protocol.Layout, key string) []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(l.Own(key)), "=", s.kv.ModRevision),
		clientv3.Compare(clientv3.LeaseValue(l.Own(key)), "=", s.kv.Lease),
	}
}

// read returns the holder of the key.
func (k Locks) read(ctx context.Context, key string) (state, error) {
	l := k.core.Layout()
	resp, err := k.core.Read(ctx, clientv3.OpGet(l.Own(key)), clientv3.OpGet(l.Epoch()),
		clientv3.OpGet(l.Sharers(key), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	if err != nil {
		return state{}, err
	}
	if err := k.core.Store().LearnEpoch(txn.Kvs(resp, 1), resp.Header.Revision); err != nil {
		return state{}, err
	}
	st := k.stateOf(txn.First(resp, 0))
	st.deserted = st.shared() && txn.Count(resp, 2) == 0
	return st, nil
}

// stateOf returns the state of a key from the value that was read: nil if it is free.
func (k Locks) stateOf(own *mvccpb.KeyValue) state {
	if own == nil {
		return state{}
	}
	h, err := protocol.DecodeHolder(own.Value)
	if err != nil {
		h = protocol.Holder{} // the key has a holder, but its value cannot be read
	}
	return state{holder: h, kv: own}
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
	if err := k.refusal(); err != nil {
		return "", false, err
	}
	if err := k.core.CheckKey(key); err != nil {
		return "", false, err
	}
	if k.claims.Passthrough() {
		return "", false, nil
	}
	st, err := k.read(ctx, key)
	if err != nil || st.kv == nil || st.deserted {
		return "", false, err
	}
	return st.holder.Owner, true, nil
}
