package group

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Names yields the names of the groups under the client's prefix, in no particular order.
// A group exists from the first Join until [Remove]. Names reads two keys for each group,
// and one more at the end. It leaves out groups that a later version of this package made.
// A passthrough client has no groups. The sequence ends after the first error.
func Names(ctx context.Context, claims *etcdclaims.Client) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := passthrough.Check(claims); err != nil {
			yield("", err)
			return
		}
		if claims.Passthrough() {
			return
		}
		specOf := func(root string) clientv3.Op { return clientv3.OpGet(keys{root: root}.spec()) }
		for kv, err := range retry.Subtrees(ctx, core.Of(claims).KV(), readTimeout, claims.Prefix()+"group/", specOf) {
			if err != nil {
				yield("", errtext.Wrap("list the groups", txn.Denied(attach.Of(claims).Explain(err))))
				return
			}
			if s, err := decode[spec](string(kv.Key), kv.Value); err == nil && !yield(s.Group, nil) {
				return
			}
		}
	}
}

// State is what etcd has of a group, apart from the owners of its partitions. It is for tools
// that look at a group once. A [View] follows a group.
type State struct {
	Group      string
	Partitions int
	Members    []MemberState // by name; those that are away or evicted are included

	keys keys
	list list
}

// MemberState describes a member as etcd has it.
type MemberState struct {
	MemberInfo
	// Lease is the lease of the member's entry, or of its reservation while it is away. It
	// is 0 if the name has only an eviction.
	Lease clientv3.LeaseID
	// Reserved is how many partitions are reserved for the member while it is away.
	Reserved int
	// Evicted describes the eviction. It is nil unless the name is kept off the list. Until
	// is zero if the eviction cannot be read.
	Evicted *EvictedError
	// Err is why the entry cannot be read. The plan then ignores the member.
	Err error
}

// Away reports whether the member has left, and its partitions are reserved.
func (m MemberState) Away() bool { return m.Instance == "" && m.Lease != 0 && m.Err == nil }

// Read reads the state of a group. It sends one request. The errors are those of [Open].
func Read(ctx context.Context, claims *etcdclaims.Client, name string) (State, error) {
	if err := claimerr.CheckName("group", name); err != nil {
		return State{}, err
	}
	if err := needsEtcd(claims, name); err != nil {
		return State{}, err
	}
	s, err := readState(ctx, claims, newKeys(claims.Prefix(), name))
	if err != nil {
		return State{}, errtext.Wrap(fmt.Sprintf("read group %q", name), err)
	}
	return s, nil
}

func readState(ctx context.Context, claims *etcdclaims.Client, k keys) (State, error) {
	resp, err := read(ctx, core.Of(claims).KV(), clientv3.OpGet(k.root, clientv3.WithPrefix()))
	if err != nil {
		return State{}, err
	}
	kvs := txn.Kvs(resp, 0)
	s := State{Group: k.group, keys: k, list: newList(k.root, kvs)}
	byName := make(map[string]*MemberState)
	for _, kv := range kvs { // away before evicted before member
		dir, name, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), k.root), "/")
		if dir == "spec" && name == "" {
			have, err := decode[spec](string(kv.Key), kv.Value)
			if err != nil {
				return State{}, err
			}
			s.Partitions = have.Partitions
			continue
		}
		if dir+"/" == dirProcess {
			continue
		}
		m := byName[name]
		if m == nil {
			m = &MemberState{MemberInfo: MemberInfo{Name: name}}
			byName[name] = m
		}
		switch dir + "/" {
		case dirMember, dirAway:
			e, err := readEntry(kv)
			m.MemberInfo, m.Lease, m.Err = e.info(name), clientv3.LeaseID(kv.Lease), err
		case dirEvicted:
			m.Evicted = s.list.evicted[name]
		}
	}
	if s.Partitions == 0 {
		return State{}, ErrNoGroup
	}
	for _, name := range s.list.reservations(s.list.listed(), s.Partitions) {
		if name != "" {
			byName[name].Reserved++
		}
	}
	for _, m := range slices.SortedFunc(maps.Values(byName), func(a, b *MemberState) int { return cmp.Compare(a.Name, b.Name) }) {
		s.Members = append(s.Members, *m)
	}
	return s, nil
}

// PartitionPrefix returns the prefix of the keys of the group's partitions, for Client.List.
func (s State) PartitionPrefix() string { return s.keys.partitions() }

// PartitionKey returns the key of a partition's claim.
func (s State) PartitionKey(partition int) string { return s.keys.partition(partition) }

// Assign returns the assignment of the partitions whose claims are given. It ignores claims that
// are not of the group's partitions.
func (s State) Assign(held iter.Seq[etcdclaims.Info]) Assignment {
	owners := make([]Owner, s.Partitions)
	for i := range held {
		if partition, ok := s.keys.partitionOf(i.Key); ok && partition < s.Partitions && i.Held && i.Kind == "" {
			owners[partition] = Owner{Instance: i.Instance, Token: fencing.Token{Key: i.Key, Fence: i.Fence}}
		}
	}
	known := maps.Clone(s.list.process)
	for _, m := range s.list.members {
		if m.Instance != "" {
			known[m.Instance] = m
		}
	}
	return s.list.assign(owners, known)
}
