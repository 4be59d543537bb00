package group

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/retry"
)

// MemberInfo describes a member.
type MemberInfo struct {
	Name          string
	Weight        int // 0 counts as 1
	Address, Zone string
	// Instance is the member's client, as Client.Instance returns it. It is empty while
	// the member is away and its partitions are reserved for it.
	Instance string
	Since    time.Time // when it joined, or went away, by its own clock
	// Until is when the reservation of a member that is away lapses, by its own clock. Zero
	// means that this is not known.
	Until time.Time
}

// away reports whether the member is one that has left, and whose partitions are reserved.
func (m MemberInfo) away() bool { return m.Instance == "" && !m.Since.IsZero() }

func (m MemberInfo) weight() int { return max(m.Weight, 1) }

// Owner describes the owner of a partition.
type Owner struct {
	// Member is the name of the owner, also if the owner has left the list or was replaced, and
	// is still draining the partition. It is empty if the partition has no owner.
	Member   string
	Instance string // the owner's client; empty if the partition has no owner
	Token    fencing.Token
	// Reserved is the name of the member that is away and owned the partition when it left. It
	// is empty if a member of the list owns the partition.
	Reserved string
}

// Assignment is the state of a group as a view knows it.
type Assignment struct {
	Members []MemberInfo // by name; those that are away are included, those evicted are not
	Owners  []Owner      // by partition
}

// Assignment returns the state of the group. It does no I/O. No partition has an owner once the
// group has another number of partitions: see [View.Route].
func (v *View) Assignment() Assignment {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.assignment()
}

// assignment is Assignment. The mutex is held.
func (v *View) assignment() Assignment {
	if v.resized() > 0 { // these owners have partitions of another division
		return v.list.assign(make([]Owner, v.partitions), v.known)
	}
	return v.list.assign(slices.Clone(v.owners), v.known)
}

// Watch yields the state of the group now, and again after each change, until ctx ends or
// the view is closed. Changes that follow each other closely are yielded as one.
func (v *View) Watch(ctx context.Context) iter.Seq[Assignment] {
	return func(yield func(Assignment) bool) {
		for {
			v.mu.Lock()
			a, changed := v.assignment(), v.changed
			v.mu.Unlock()
			if !yield(a) {
				return
			}
			select {
			case <-changed:
				if !retry.Sleep(ctx, settleTime) {
					return
				}
			case <-ctx.Done():
				return
			case <-v.ctx.Done():
				return
			}
		}
	}
}

// Partitions returns the number of partitions that the group had when the view was opened.
func (v *View) Partitions() int { return v.partitions }

// resized returns the number of partitions with which the group was made anew, or 0 if it still
// has that of the view. The mutex is held.
func (v *View) resized() int {
	if now := v.list.spec.partitions; now != v.partitions {
		return now
	}
	return 0
}

// Plan returns the plan of the state of the group: see [Assignment.Plan]. It does no I/O.
func (v *View) Plan(join []MemberInfo, leave ...string) Plan {
	return v.Assignment().Plan(join, leave...)
}

// Plan is a dry run: it returns which partitions would move, and why, if the given members
// joined and those with the given names left. Without arguments it returns the moves
// that are due now. A partition that is reserved counts as owned by the member that is away.
func (a Assignment) Plan(join []MemberInfo, leave ...string) Plan {
	members := make(map[string]MemberInfo)
	for _, m := range append(slices.Clone(a.Members), join...) {
		members[m.Name] = m
	}
	maps.DeleteFunc(members, func(name string, _ MemberInfo) bool { return slices.Contains(leave, name) })
	p := Balance(slices.Collect(maps.Values(members)), a.owned())
	for i, m := range p.Moves {
		if owner := a.Owners[m.Partition].Member; m.From == "" && slices.Contains(leave, owner) {
			p.Moves[i].Why = fmt.Sprintf("its owner %s is to leave", owner)
		}
		if members[m.To].away() {
			p.Moves[i].Why += fmt.Sprintf("; %s is away, and gets the partition when it is back", m.To)
		}
	}
	return p
}

// owned returns the names of the partitions' owners, as far as they are on the list. A partition of
// an earlier process of a member counts as the member's, and so does one that is reserved:
// a restart moves no partition.
func (a Assignment) owned() []string {
	names := make(map[string]bool, len(a.Members))
	for _, m := range a.Members {
		names[m.Name] = true
	}
	owners := make([]string, len(a.Owners))
	for partition, o := range a.Owners {
		if names[o.Member] {
			owners[partition] = o.Member
		} else if names[o.Reserved] {
			owners[partition] = o.Reserved
		}
	}
	return owners
}
