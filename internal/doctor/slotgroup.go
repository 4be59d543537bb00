package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
)

// SlotGroup is a group and the claims of its slots, as tools show them.
type SlotGroup struct {
	group.State
	Assigned group.Assignment
	Plan     group.Plan

	held []etcdclaims.Info // by slot; Held is false if nobody has it
}

// NewSlotGroup returns a group of which the claims below its SlotPrefix are known.
func NewSlotGroup(s group.State, claims []etcdclaims.Info) SlotGroup {
	g := SlotGroup{State: s, Assigned: s.Assign(slices.Values(claims)), held: make([]etcdclaims.Info, s.Slots)}
	byKey := make(map[string]etcdclaims.Info, len(claims))
	for _, i := range claims {
		byKey[i.Key] = i
	}
	for slot := range g.held {
		g.held[slot] = byKey[s.SlotKey(slot)]
	}
	g.Plan = g.Assigned.Plan(nil)
	return g
}

// ReadSlotGroup reads a group, and then the claims of its slots.
func ReadSlotGroup(ctx context.Context, claims *etcdclaims.Client, name string) (SlotGroup, error) {
	s, err := group.Read(ctx, claims, name)
	if err != nil {
		return SlotGroup{}, err
	}
	var held []etcdclaims.Info
	for i, err := range claims.List(ctx, s.SlotPrefix()) {
		if err != nil {
			return SlotGroup{}, fmt.Errorf("read the slots of group %q: %w", name, err)
		}
		held = append(held, i)
	}
	return NewSlotGroup(s, held), nil
}

// Holder returns the holder of a slot: also an owner that is not on the list, and a handler
// that did not stop. Held is false if nobody has the slot.
func (g SlotGroup) Holder(slot int) etcdclaims.Info { return g.held[slot] }

// SlotCounts counts the members and the slots of a group.
type SlotCounts struct {
	Members  int // on the list and there
	Away     int
	Evicted  int
	Free     int // slots that nobody has
	Reserved int // of these, for members that are away
	Moving   int // slots of an owner that are to go to another member
}

// Counts counts the members and the slots.
func (g SlotGroup) Counts() (n SlotCounts) {
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
	for slot, o := range g.Assigned.Owners {
		if g.held[slot].Held {
			continue
		}
		if n.Free++; o.Reserved != "" {
			n.Reserved++
		}
	}
	for _, move := range g.Plan.Moves {
		if g.held[move.Slot].Held {
			n.Moving++
		}
	}
	return n
}

// What a SlotMember is.
const (
	StateMember     = "member"
	StateAway       = "away"
	StateEvicted    = "evicted"
	StateUnreadable = "unreadable"
	StateUnlisted   = "unlisted" // it owns slots and is not on the list: it drains them
)

// SlotMember is a member of a group, or an owner of slots that is not on the list.
type SlotMember struct {
	group.MemberInfo // Until is the end of the reservation or of the eviction

	State    string
	Owns     int
	Wants    int // its share in the plan
	Reserved int
	By, Why  string // of the eviction; or why the entry cannot be read
}

// AllMembers returns the members by name, and then the owners that are not on the list.
func (g SlotGroup) AllMembers() []SlotMember {
	others := make(map[string]*SlotMember) // by instance: all owners at first
	for slot, i := range g.held {
		if !i.Held {
			continue
		}
		if others[i.Instance] == nil {
			name := cmp.Or(g.Assigned.Owners[slot].Member, i.Owner)
			others[i.Instance] = &SlotMember{MemberInfo: group.MemberInfo{Name: name, Instance: i.Instance}, State: StateUnlisted}
		}
		others[i.Instance].Owns++
	}
	var all []SlotMember
	for _, m := range g.Members {
		v := SlotMember{MemberInfo: m.MemberInfo, State: StateMember, Wants: g.Plan.Share[m.Name], Reserved: m.Reserved}
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
	for _, m := range slices.SortedFunc(maps.Values(others), func(a, b *SlotMember) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Instance, b.Instance))
	}) {
		all = append(all, *m)
	}
	return all
}
