package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// evictTime is how long an evicted member has to hand over its slots by itself.
const evictTime = 2*successorTime + time.Second

// Evict takes a member off the list, and keeps its name off the list for d, which is
// rounded up to full seconds and at most 365 days. It is meant for a member that
// renews its claims but does not work.
//
// A member that works leaves with an *EvictedError, and hands over its slots. What it has
// not handed over after 5 s is taken from it: its claims are lost, and the fences of the
// next owners refuse what it still writes. Evict returns then. A member that is not in
// the list is only kept off.
//
// If the error matches etcdclaims.ErrUnknown, or ctx has ended, the member may be
// evicted. Calling again is safe.
func (v *View) Evict(ctx context.Context, member, reason string, d time.Duration) error {
	if err := checkName("member", member); err != nil {
		return err
	}
	if d < time.Second || d > maxEviction || len(reason) > maxLabel {
		return fmt.Errorf("evict %q from group %q: duration %v is not between 1s and %v, or the reason is longer than %d bytes", member, v.keys.group, d, maxEviction, maxLabel)
	}
	if err := v.evict(ctx, member, reason, d); err != nil {
		return fmt.Errorf("evict %q from group %q: %w", member, v.keys.group, err)
	}
	return nil
}

func (v *View) evict(ctx context.Context, member, reason string, d time.Duration) error {
	v.mu.Lock()
	instance := v.members[member].Instance
	v.mu.Unlock()
	grant, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTimeout)
	lease, err := v.claims.GrantLease(grant, d)
	cancel()
	if err != nil {
		return err
	}
	mark := encode(eviction{valueVersion, reason, v.claims.Owner(), time.Now().Add(d).UTC()})
	then := []clientv3.Op{
		clientv3.OpPut(v.keys.evicted(member), mark, clientv3.WithLease(lease), clientv3.WithPrevKV()),
		clientv3.OpDelete(v.keys.away(member), clientv3.WithPrevKV()),
	}
	resp, err := commit(ctx, v.claims.KV(), nil, then, nil)
	if err != nil {
		return err
	}
	revoke(ctx, v.claims, resp.Responses, lease)
	if instance == "" {
		return nil
	}
	graceful, cancel := context.WithTimeout(ctx, evictTime)
	defer cancel()
	if err := v.until(graceful, func() bool { return v.members[member].Instance != instance && len(v.ownedBy(instance)) == 0 }); err == nil || ctx.Err() != nil {
		return err
	}
	v.mu.Lock()
	left := v.ownedBy(instance)
	v.mu.Unlock()
	var errs []error
	for _, o := range left {
		if err := v.claims.ForceReleaseTerm(ctx, o.Token, reason); !errors.Is(err, etcdclaims.ErrRefused) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, v.claims.ForceRelease(ctx, v.keys.claimOf(instance), reason))
	_, err = commit(ctx, v.claims.KV(), nil, []clientv3.Op{clientv3.OpDelete(v.keys.member(member))}, nil)
	return errors.Join(append(errs, err)...)
}

// ownedBy returns the slots of an instance. The mutex is held.
func (v *View) ownedBy(instance string) (owned []Owner) {
	for _, o := range v.owners {
		if o.Instance == instance {
			owned = append(owned, o)
		}
	}
	return owned
}

// Readmit ends the eviction of a member before its time. A process may then join with the
// name. A member that was not evicted is not an error.
func (v *View) Readmit(ctx context.Context, member string) error {
	if err := checkName("member", member); err != nil {
		return err
	}
	resp, err := commit(ctx, v.claims.KV(), nil, []clientv3.Op{clientv3.OpDelete(v.keys.evicted(member), clientv3.WithPrevKV())}, nil)
	if err != nil {
		return fmt.Errorf("readmit %q to group %q: %w", member, v.keys.group, err)
	}
	revoke(ctx, v.claims, resp.Responses, clientv3.NoLease)
	return nil
}

// revoke ends the leases of the keys that operations have deleted or replaced. Each
// reservation and eviction has a lease of its own. keep is not revoked: an operation that
// was carried out twice has replaced its own key. A lease that cannot be revoked lapses.
func revoke(ctx context.Context, claims *etcdclaims.Client, responses []*etcdserverpb.ResponseOp, keep clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTimeout)
	defer cancel()
	for _, r := range responses {
		kvs := r.GetResponseDeleteRange().GetPrevKvs()
		if kv := r.GetResponsePut().GetPrevKv(); kv != nil {
			kvs = append(kvs, kv)
		}
		for _, kv := range kvs {
			if id := clientv3.LeaseID(kv.Lease); id != clientv3.NoLease && id != keep {
				_, _ = claims.Etcd().Revoke(ctx, id)
			}
		}
	}
}

// Remove removes what a group without members leaves in etcd: its number of slots, and
// names that are away or evicted. The next Join makes the group anew. The error matches
// ErrInUse if the group has members, or if one that left still owns slots; nothing was
// changed then. A group that does not exist is not an error.
func Remove(ctx context.Context, claims *etcdclaims.Client, name string) error {
	if err := checkName("group", name); err != nil {
		return err
	}
	if claims.Passthrough() {
		return fmt.Errorf("group %q: %w", name, etcdclaims.ErrPassthrough)
	}
	k := newKeys(claims.Prefix(), name)
	unused := []clientv3.Cmp{absent(k.root + dirMember).WithPrefix(), absent(claims.OwnKey(k.claims())).WithPrefix()}
	resp, err := commit(ctx, claims.KV(), unused, []clientv3.Op{clientv3.OpDelete(k.root, clientv3.WithPrefix(), clientv3.WithPrevKV())}, nil)
	if err == nil && !resp.Succeeded {
		err = ErrInUse
	}
	if err != nil {
		return fmt.Errorf("remove group %q: %w", name, err)
	}
	revoke(ctx, claims, resp.Responses, clientv3.NoLease)
	return nil
}
