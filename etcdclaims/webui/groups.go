package webui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/explain"
)

const (
	// mostPartitionGroups is how many groups of partitions a list has.
	mostPartitionGroups = 100
	// groupEvery is how often the members of a group are read while a tab shows them.
	groupEvery = 2 * time.Second
)

// under returns the claims of the keys with a prefix, in the order of keys.
func (b *board) under(prefix string) []etcdclaims.Info {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var all []etcdclaims.Info
	for _, key := range b.keysUnder(prefix) {
		all = append(all, *b.held[key])
	}
	return all
}

// partitionGroup is a group of partitions: its members as they were read, and the owners of its
// partitions as the board knows them.
type partitionGroup struct{ explain.PartitionGroup }

func newPartitionGroup(s group.State, b *board) partitionGroup {
	return partitionGroup{explain.NewPartitionGroup(s, b.under(s.PartitionPrefix()))}
}

// partitionGroupRow is a group in a list.
type partitionGroupRow struct {
	Name       string
	Partitions int
	explain.PartitionCounts
	Unowned bool // partitions without an owner have a target
	Err     string
}

func (g partitionGroup) row() partitionGroupRow {
	r := partitionGroupRow{Name: g.Group, Partitions: g.Partitions, PartitionCounts: g.Counts()}
	r.Unowned = r.Members > 0 && r.Free > r.Reserved
	return r
}

// groupRead is a group that was read, or why it could not be.
type groupRead struct {
	name  string
	state group.State
	err   string
}

func (q *request) partitionGroups() (any, error) {
	b := q.useClaims("group/")
	all, fresh := snapshotOf(q, "groups", 5*time.Second, func(ctx context.Context, h *Handler) ([]groupRead, error) {
		if h.claims.Passthrough() {
			return nil, nil
		}
		names, err := first(mostPartitionGroups, group.Names(ctx, h.claims))
		if err != nil {
			return nil, err
		}
		slices.Sort(names)
		var all []groupRead
		for _, name := range names {
			s, err := group.Read(ctx, h.claims, name)
			if !errors.Is(err, group.ErrNoGroup) { // it was removed meanwhile
				all = append(all, groupRead{name, s, text(err)})
			}
		}
		return all, nil
	})
	return listOf(q, all, fresh, mostPartitionGroups, func(r groupRead) partitionGroupRow {
		if r.err != "" {
			return partitionGroupRow{Name: r.name, Err: r.err}
		}
		return newPartitionGroup(r.state, b).row()
	}), nil
}

// partitionGroup returns a group. missing reports that it does not exist.
func (q *request) partitionGroup(name string) (g partitionGroup, missing bool, fresh freshness, err error) {
	b := q.useClaims("group/" + name + "/")
	type found struct {
		state   group.State
		missing bool
	}
	f, fresh := snapshotOf(q, fmt.Sprintf("group %q", name), groupEvery, func(ctx context.Context, h *Handler) (found, error) {
		s, err := group.Read(ctx, h.claims, name)
		if errors.Is(err, group.ErrNoGroup) {
			return found{missing: true}, nil
		}
		return found{state: s}, err
	})
	if errors.Is(fresh.Err, etcdclaims.ErrInvalidKey) {
		return g, false, fresh, errInput{fresh.Err.Error()}
	}
	if fresh.At.IsZero() || f.missing {
		return g, f.missing, fresh, nil
	}
	return newPartitionGroup(f.state, b), false, fresh, nil
}

// changeGroup evicts or readmits a member.
func (h *Handler) changeGroup(ctx context.Context, op Operation, why string) error {
	v, err := group.Open(ctx, h.claims, op.Group)
	if err != nil {
		return err
	}
	defer v.Close()
	if op.Action == actionReadmit {
		return v.Readmit(ctx, op.Member)
	}
	return v.Evict(ctx, op.Member, why, op.For)
}

// mostEviction is the longest eviction that the page takes.
const mostEviction = 7 * 24 * time.Hour

// readEviction reads for how long a member is evicted, and wants a reason.
func (op *Operation) readEviction(length string) error {
	d, err := time.ParseDuration(length)
	if err != nil || d < time.Second || d > mostEviction {
		return fmt.Errorf("%q is not a time from 1s to %v", cut(length, 40), mostEviction)
	}
	if op.For = d; op.Reason == "" {
		return errors.New("give a reason: the member's log and the page show it")
	}
	return nil
}
