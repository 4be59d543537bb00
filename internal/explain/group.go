package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
)

// PartitionGroup is a group and the claims of its partitions, as tools show them.
type PartitionGroup struct {
	group.State
	Assigned group.Assignment
	Plan     group.Plan

	held []etcdclaims.Info // by partition; Held is false if nobody has it
}

// NewPartitionGroup returns a group of which the claims below its PartitionPrefix are known.
func NewPartitionGroup(s group.State, claims []etcdclaims.Info) PartitionGroup {
	g := PartitionGroup{State: s, Assigned: s.Assign(slices.Values(claims)), held: make([]etcdclaims.Info, s.Partitions)}
	byKey := make(map[string]etcdclaims.Info, len(claims))
	for _, i := range claims {
		byKey[i.Key] = i
	}
	for partition := range g.held {
		g.held[partition] = byKey[s.PartitionKey(partition)]
	}
	g.Plan = g.Assigned.Plan(nil)
	return g
}

// ReadPartitionGroup reads a group, and then the claims of its partitions.
func ReadPartitionGroup(ctx context.Context, claims *etcdclaims.Client, name string) (PartitionGroup, error) {
	s, err := group.Read(ctx, claims, name)
	if err != nil {
		return PartitionGroup{}, err
	}
	var held []etcdclaims.Info
	for i, err := range claims.List(ctx, s.PartitionPrefix()) {
		if err != nil {
			return PartitionGroup{}, fmt.Errorf("read the partitions of group %q: %w", name, err)
		}
		held = append(held, i)
	}
	return NewPartitionGroup(s, held), nil
}

// Holder returns the holder of a partition: also an owner that is not on the list, and a handler
// that did not stop. Held is false if nobody has the partition.
func (g PartitionGroup) Holder(partition int) etcdclaims.Info { return g.held[partition] }

// PartitionCounts counts the members and the partitions of a group.
type PartitionCounts struct {
	Members  int // on the list and there
	Away     int
	Evicted  int
	Free     int // partitions that nobody has
	Reserved int // of these, for members that are away
	Moving   int // partitions of an owner that are to go to another member
}

// Counts counts the members and the partitions.
func (g PartitionGroup) Counts() (n PartitionCounts) {
	for _, m := range g.Members {
		switch {
		case m.Evicted != nil:
			n.Evicted++
		case m.Away():
			n.Away++
		case m.Err == nil:
			n.Members++
		}
	}
	for partition, o := range g.Assigned.Owners {
		if g.held[partition].Held {
			continue
		}
		if n.Free++; o.Reserved != "" {
			n.Reserved++
		}
	}
	for _, move := range g.Plan.Moves {
		if g.held[move.Partition].Held {
			n.Moving++
		}
	}
	return n
}

// What a PartitionMember is.
const (
	StateMember     = "member"
	StateAway       = "away"
	StateEvicted    = "evicted"
	StateUnreadable = "unreadable"
	StateUnlisted   = "unlisted" // it owns partitions and is not on the list: it drains them
)

// PartitionMember is a member of a group, or an owner of partitions that is not on the list.
type PartitionMember struct {
	group.MemberInfo // Until is the end of the reservation or of the eviction

	State    string
	Owns     int
	Wants    int // its share in the plan
	Reserved int
	By, Why  string // of the eviction; or why the entry cannot be read
}

// AllMembers returns the members by name, and then the owners that are not on the list.
func (g PartitionGroup) AllMembers() []PartitionMember {
	others := make(map[string]*PartitionMember) // by instance: all owners at first
	for partition, i := range g.held {
		if !i.Held {
			continue
		}
		if others[i.Instance] == nil {
			name := cmp.Or(g.Assigned.Owners[partition].Member, i.Owner)
			others[i.Instance] = &PartitionMember{MemberInfo: group.MemberInfo{Name: name, Instance: i.Instance}, State: StateUnlisted}
		}
		others[i.Instance].Owns++
	}
	var all []PartitionMember
	for _, m := range g.Members {
		v := PartitionMember{MemberInfo: m.MemberInfo, State: StateMember, Wants: g.Plan.Share[m.Name], Reserved: m.Reserved}
		v.Weight = max(m.Weight, 1)
		switch {
		case m.Evicted != nil:
			v.State, v.Until, v.By, v.Why = StateEvicted, m.Evicted.Until, m.Evicted.By, m.Evicted.Reason
		case m.Err != nil:
			v.State, v.Why = StateUnreadable, m.Err.Error()
		case m.Away():
			v.State = StateAway
		}
		if owner := others[m.Instance]; m.Instance != "" && owner != nil {
			v.Owns = owner.Owns
		}
		all = append(all, v)
	}
	for _, m := range g.Members {
		if m.Instance != "" {
			delete(others, m.Instance)
		}
	}
	for _, m := range slices.SortedFunc(maps.Values(others), func(a, b *PartitionMember) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Instance, b.Instance))
	}) {
		all = append(all, *m)
	}
	return all
}
