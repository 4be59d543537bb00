package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// evictTime is how long an evicted member has to hand over its partitions by itself.
const evictTime = 2*successorTime + time.Second

// Evict takes a member off the list, and keeps its name off the list for d, which is
// rounded up to full seconds and at most 365 days. It is meant for a member that
// renews its claims but does not work.
//
// A member that works leaves with an *EvictedError, and hands over its partitions. Partitions
// that it has not handed over after 5 s are taken from it: their claims are lost, and the
// fences of the next owners refuse its later writes. Then Evict returns. That goes also for
// partitions of a process that has left the list, or was replaced, and has not given them up.
//
// If the error matches etcdclaims.ErrUnknown, or ctx has ended, the member may be
// evicted. Calling again is safe. Evict fails if a later version of this package wrote the
// entry or an eviction of the member.
func (v *View) Evict(ctx context.Context, member, reason string, d time.Duration) error {
	if err := claimerr.CheckName("member", member); err != nil {
		return err
	}
	if d < time.Second || d > maxEviction || len(reason) > maxLabel {
		return fmt.Errorf("evict %q from group %q: duration %v is not between 1s and %v, or the reason is longer than %d bytes", member, v.keys.group, d, maxEviction, maxLabel)
	}
	on := audit.Target{Group: v.keys.group, Member: member, Detail: "for " + d.String()}
	act := audit.Begin(ctx, v.claims, audit.EvictMember, on, reason)
	if err := act.End(ctx, v.evict(ctx, act, member, reason, d)); err != nil {
		return errtext.Wrap(fmt.Sprintf("evict %q from group %q", member, v.keys.group), attach.Of(v.claims).Explain(err))
	}
	return nil
}

func (v *View) evict(ctx context.Context, act *audit.Act, member, reason string, d time.Duration) error {
	lease, err := retry.Within(ctx, readTimeout, func(ctx context.Context) (clientv3.LeaseID, error) {
		return core.Of(v.claims).GrantLease(ctx, d)
	})
	if err != nil {
		return txn.Denied(err)
	}
	evicted := v.keys.evicted(member)
	mark := encode(eviction{valueVersion, reason, v.claims.Owner(), clock.For(v.claims.Etcd()).Time().Add(d).UTC()})
	var entered *mvccpb.KeyValue
	rev, err := v.amend(ctx, member, lease, func(have []*mvccpb.KeyValue) ([]clientv3.Op, error) {
		entered = have[1]
		if kv := have[0]; kv != nil && string(kv.Value) == mark {
			return nil, nil // an earlier reply was lost
		}
		if err := cmp.Or(newer(have[0]), newer(have[1])); err != nil {
			return nil, err
		}
		then := []clientv3.Op{clientv3.OpPut(evicted, mark, clientv3.WithLease(lease), clientv3.WithPrevKV())}
		if newer(have[2]) == nil {
			then = append(then, clientv3.OpDelete(v.keys.away(member), clientv3.WithPrevKV()))
		}
		return append(then, act.Ops()...), nil
	})
	if err != nil {
		if !errors.Is(err, etcdclaims.ErrUnknown) { // else the mark may be on the lease
			revoke(ctx, v.claims, lease)
		}
		return err
	}
	return v.expel(ctx, member, entered, reason, rev)
}

// instances returns the process of an entry, and those that own partitions and have the name in
// the view: earlier ones, and one that has taken itself off the list.
func (v *View) instances(member string, entered *mvccpb.KeyValue) map[string]bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make(map[string]bool)
	if entered != nil {
		if e, err := readEntry(entered); err == nil && e.Instance != "" {
			out[e.Instance] = true
		}
	}
	for _, o := range v.owners {
		if v.known[o.Instance].Name == member {
			out[o.Instance] = true
		}
	}
	return out
}

// expel waits until the processes of an evicted member have handed over their partitions, and
// then takes from them what they still have. rev is the revision of the eviction, and entered
// the entry that the member had then, or nil. The view can be older: it has to catch up first.
func (v *View) expel(ctx context.Context, member string, entered *mvccpb.KeyValue, reason string, rev int64) error {
	graceful, cancel := context.WithTimeout(ctx, evictTime)
	defer cancel()
	if err := v.until(graceful, func() bool { return v.rev >= rev }); err != nil && (ctx.Err() != nil || v.ctx.Err() != nil) {
		return err
	}
	instances := v.instances(member, entered)
	if len(instances) == 0 {
		return nil
	}
	gone := func() bool {
		return v.rev >= rev && !instances[v.members[member].Instance] && len(v.ownedBy(instances)) == 0
	}
	if err := v.until(graceful, gone); err == nil || ctx.Err() != nil {
		return err
	}
	v.mu.Lock()
	left := v.ownedBy(instances)
	v.mu.Unlock()
	var errs []error
	parts := audit.Part(ctx)
	for _, o := range left {
		if err := admin.ForceReleaseTerm(parts, v.claims, o.Token, reason); !errors.Is(err, etcdclaims.ErrRefused) {
			errs = append(errs, err)
		}
	}
	for instance := range instances {
		errs = append(errs, admin.ForceRelease(parts, v.claims, v.keys.claimOf(instance), reason))
	}
	entry := v.keys.member(member)
	drop := []clientv3.Op{clientv3.OpDelete(entry)}
	_, err := commit(ctx, core.Of(v.claims).KV(), []clientv3.Cmp{unchanged(entry, rev)}, drop, nil)
	return errors.Join(append(errs, err)...)
}

// amend changes what etcd has of a name: its eviction, its entry and its reservation, which
// decide is called with: nil for what there is not. It is called again if one of them changes
// meanwhile, and returns no operations if nothing is to be done. amend returns the revision
// of the change, or of the last read. keep is a lease that is not revoked.
func (v *View) amend(ctx context.Context, name string, keep clientv3.LeaseID,
	decide func(have []*mvccpb.KeyValue) ([]clientv3.Op, error),
) (rev int64, err error) {
	all := []string{v.keys.evicted(name), v.keys.member(name), v.keys.away(name)}
	var gets []clientv3.Op
	for _, key := range all {
		gets = append(gets, clientv3.OpGet(key))
	}
	resp, err := commit(ctx, core.Of(v.claims).KV(), nil, gets, nil)
	for err == nil {
		var have []*mvccpb.KeyValue
		var cmps []clientv3.Cmp
		for i, key := range all {
			have, cmps = append(have, txn.First(resp, i)), append(cmps, unchanged(key, resp.Header.Revision))
		}
		then, err := decide(have)
		if err != nil || then == nil {
			return resp.Header.Revision, err
		}
		// A refusal reads at once: another request could be refused, and leave it open
		// whether this one was carried out.
		if resp, err = commit(ctx, core.Of(v.claims).KV(), cmps, then, gets); err != nil {
			return 0, err
		}
		if resp.Succeeded {
			revoke(ctx, v.claims, leasesOf(resp.Responses, keep)...)
			return resp.Header.Revision, nil
		}
	}
	return 0, err
}

// ownedBy returns the partitions of instances. The mutex is held.
func (v *View) ownedBy(instances map[string]bool) (owned []Owner) {
	for _, o := range v.owners {
		if instances[o.Instance] {
			owned = append(owned, o)
		}
	}
	return owned
}

// Readmit ends the eviction of a member before its time. A process may then join with the
// name. A member that was not evicted is not an error. Readmit fails if a later version of
// this package wrote the eviction.
func (v *View) Readmit(ctx context.Context, member string) error {
	if err := claimerr.CheckName("member", member); err != nil {
		return err
	}
	act := audit.Begin(ctx, v.claims, audit.ReadmitMember, audit.Target{Group: v.keys.group, Member: member}, "")
	_, err := audit.Send(act, func(act *audit.Act) (int64, error) {
		return v.amend(ctx, member, clientv3.NoLease, func(have []*mvccpb.KeyValue) ([]clientv3.Op, error) {
			if have[0] == nil {
				return nil, nil
			}
			return append(act.Ops(), clientv3.OpDelete(v.keys.evicted(member), clientv3.WithPrevKV())), newer(have[0])
		})
	})
	if err := act.End(ctx, err); err != nil {
		return errtext.Wrap(fmt.Sprintf("readmit %q to group %q", member, v.keys.group), err)
	}
	return nil
}

// leasesOf returns the leases of the keys that operations have deleted or replaced. Each
// reservation and eviction has a lease of its own. keep is left out: an operation that was
// carried out twice has replaced its own key.
func leasesOf(responses []*etcdserverpb.ResponseOp, keep clientv3.LeaseID) (leases []clientv3.LeaseID) {
	for _, r := range responses {
		kvs := r.GetResponseDeleteRange().GetPrevKvs()
		if kv := r.GetResponsePut().GetPrevKv(); kv != nil {
			kvs = append(kvs, kv)
		}
		for _, kv := range kvs {
			if id := clientv3.LeaseID(kv.Lease); id != clientv3.NoLease && id != keep {
				leases = append(leases, id)
			}
		}
	}
	return leases
}

// revoke ends leases, also if ctx has ended. One that cannot be revoked lapses.
func revoke(ctx context.Context, claims *etcdclaims.Client, leases ...clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(context.WithoutCancel(ctx)), readTimeout)
	defer cancel()
	for _, lease := range leases {
		_ = core.Of(claims).RevokeLease(ctx, lease)
	}
}

// Remove removes the keys that a group without members leaves in etcd: its number of partitions, and
// names that are away or evicted. The next Join makes the group anew. The error matches
// ErrInUse if the group has members, or if one that left still owns partitions; nothing was
// changed then. A group that does not exist is not an error. Remove fails if a later version
// of this package wrote any of the keys.
func Remove(ctx context.Context, claims *etcdclaims.Client, name string) error {
	if err := claimerr.CheckName("group", name); err != nil {
		return err
	}
	if err := needsEtcd(claims, name); err != nil {
		return err
	}
	act := audit.Begin(ctx, claims, audit.RemoveGroup, audit.Target{Group: name}, "")
	// Beyond its quota etcd refuses this: it makes little room, and doctor would miss a group that went without a record.
	if err := act.End(ctx, remove(ctx, claims, act, newKeys(claims.Prefix(), name))); err != nil {
		return errtext.Wrap(fmt.Sprintf("remove group %q", name), err)
	}
	return nil
}

func remove(ctx context.Context, claims *etcdclaims.Client, act *audit.Act, k keys) error {
	members, owned := k.root+dirMember, claims.OwnKey(k.claims())
	unused := []clientv3.Cmp{absent(members).WithPrefix(), absent(owned).WithPrefix()}
	for {
		resp, err := commit(ctx, core.Of(claims).KV(), unused, nil, nil)
		switch {
		case err != nil:
			return err
		case !resp.Succeeded:
			return ErrInUse
		}
		if resp, err = read(ctx, core.Of(claims).KV(), clientv3.OpGet(k.root, clientv3.WithPrefix())); err != nil {
			return err
		}
		if len(txn.Kvs(resp, 0)) == 0 {
			return nil
		}
		var leases []clientv3.LeaseID
		for _, kv := range txn.Kvs(resp, 0) {
			if err := newer(kv); err != nil {
				return err
			}
			if kv.Lease != 0 && !strings.HasPrefix(string(kv.Key), k.root+dirProcess) { // those are on leases that are not the group's alone
				leases = append(leases, clientv3.LeaseID(kv.Lease))
			}
		}
		resp, err = commit(ctx, core.Of(claims).KV(),
			append(unused[:2:2], unchanged(k.root, resp.Header.Revision).WithPrefix()),
			append(act.Ops(), clientv3.OpDelete(k.root, clientv3.WithPrefix())), nil)
		if err != nil {
			return err
		}
		if resp.Succeeded {
			revoke(ctx, claims, leases...)
			return nil
		}
	}
}
