package group

import (
	"cmp"
	"fmt"
	"slices"
)

// A Plan assigns the partitions of a group to its members. It is a pure function of the members
// and the owners: see [Balance].
type Plan struct {
	// Target has the member of each partition. All are empty if there are no members.
	Target []string
	// Share has how many partitions each member should own.
	Share map[string]int
	// Moves has the partitions whose owner is not their target, in the order of partitions.
	Moves []Move
}

// Move is a partition whose owner changes.
type Move struct {
	Partition int
	From, To  string // names of members; From is empty if no member owns the partition
	Why       string // for people: why the partition leaves its owner
}

// Balance returns the plan for the partitions whose owners are given. The owner of a partition is
// the name of a member. An empty name, or one that is not a member's, means that no
// member owns the partition.
//
// A member's share of the partitions is in proportion to its weight, rounded down or up. With
// equal weights, the shares of two members differ by one at most. No plan with such
// shares has fewer moves. If the partitions are balanced and weights are equal, a new member
// moves only as many partitions as its share has. The end of a member moves only its own
// partitions. With unequal weights, rounding can move one more partition for each member.
//
// The plan does not depend on the order of the members. It is also stable: if some of its
// moves are carried out, in any order, the plan for the result has the same targets. So
// members whose knowledge of the owners differs agree on the targets.
func Balance(members []MemberInfo, owners []string) Plan {
	p := Plan{Target: make([]string, len(owners)), Share: make(map[string]int, len(members))}
	if len(members) == 0 {
		return p
	}
	members = slices.SortedFunc(slices.Values(members), func(a, b MemberInfo) int { return cmp.Compare(a.Name, b.Name) })
	index := make(map[string]int, len(members))
	for i, m := range members {
		index[m.Name] = i
	}
	has := make([]int, len(members))
	for _, name := range owners {
		if i, ok := index[name]; ok {
			has[i]++
		}
	}
	share := shares(members, has, len(owners))

	// Each member keeps its first partitions up to its share, and the others are dealt, in their order,
	// to the members with room, in the order of names. So the plan is stable. A partition that has moved
	// was dealt to its new owner before. Now the owner keeps it, and has room for one less, so all
	// others are dealt as before. Shares do not change either: partitions left over after rounding
	// down go first to members that own more than their rounded share, and a member comes to own
	// more only by a move that its share allows. For the same reason no plan has fewer moves.
	kept := make([]int, len(members))
	var open []int
	for partition, name := range owners {
		i, ok := index[name]
		if !ok || kept[i] == share[i] {
			open = append(open, partition)
			continue
		}
		kept[i]++
		p.Target[partition] = name
	}
	next := 0
	for _, partition := range open {
		for kept[next] == share[next] {
			next++
		}
		kept[next]++
		to := members[next].Name
		p.Target[partition] = to
		move := Move{Partition: partition, To: to, Why: "no member owns the partition"}
		if i, ok := index[owners[partition]]; ok {
			move.From, move.Why = owners[partition], fmt.Sprintf("%s owns %d partitions, its share is %d", owners[partition], has[i], share[i])
		}
		p.Moves = append(p.Moves, move)
	}
	for i, m := range members {
		p.Share[m.Name] = share[i]
	}
	return p
}

// shares returns how many partitions each member should own, given how many it owns. The
// members are in the order of their names.
func shares(members []MemberInfo, has []int, partitions int) []int {
	var total int64
	for _, m := range members {
		total += int64(m.weight())
	}
	share, rest := make([]int, len(members)), make([]int64, len(members))
	left := partitions
	var fractions []int // members whose share is not a whole number
	for i, m := range members {
		exact := int64(partitions) * int64(m.weight())
		share[i], rest[i] = int(exact/total), exact%total
		left -= share[i]
		if rest[i] > 0 {
			fractions = append(fractions, i)
		}
	}
	// The partitions that are left over go first to members that already have more: each of
	// these would otherwise have to give up a partition.
	more := func(i int) int {
		if has[i] > share[i] {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(fractions, func(a, b int) int {
		return cmp.Or(cmp.Compare(more(a), more(b)), cmp.Compare(rest[b], rest[a]))
	})
	for _, i := range fractions[:left] {
		share[i]++
	}
	return share
}
