package webui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/doctor"
)

const (
	// mostSlotGroups is how many groups of slots a list has.
	mostSlotGroups = 100
	// groupEvery is how often the members of a group are read while a tab shows them.
	groupEvery = 2 * time.Second
)

// under returns the claims of the keys with a prefix, in the order of keys.
func (b *board) under(prefix string) []etcdclaims.Info {
	b.mu.RLock()
	defer b.mu.RUnlock()
	lo, _ := slices.BinarySearch(b.keys, prefix)
	keys := b.keys[lo:]
	keys = keys[:sort.Search(len(keys), func(i int) bool { return !strings.HasPrefix(keys[i], prefix) })]
	all := make([]etcdclaims.Info, 0, len(keys))
	for _, key := range keys {
		all = append(all, b.held[key])
	}
	return all
}

// slotGroup is a group of slots: its members as they were read, and the owners of its
// slots as the board knows them.
type slotGroup struct{ doctor.SlotGroup }

func newSlotGroup(s group.State, b *board) slotGroup {
	return slotGroup{doctor.NewSlotGroup(s, b.under(s.SlotPrefix()))}
}

// slotGroupRow is a group in a list.
type slotGroupRow struct {
	Name  string
	Slots int
	doctor.SlotCounts
	Unowned bool // slots without an owner have a target
	Err     string
}

func (g slotGroup) row() slotGroupRow {
	r := slotGroupRow{Name: g.Group, Slots: g.Slots, SlotCounts: g.Counts()}
	r.Unowned = r.Members > 0 && r.Free > r.Reserved
	return r
}

// slotGroupsPage lists the groups of slots.
type slotGroupsPage struct {
	Groups []slotGroupRow
	Pager  pager
	More   bool
	Fresh  Fresh
}

// groupRead is a group that was read, or why it could not be.
type groupRead struct {
	name  string
	state group.State
	err   string
}

func (q *request) slotGroups() (any, error) {
	b := q.useClaims("group/")
	all, fresh := snapshotOf(q, "groups", 5*time.Second, func(ctx context.Context, h *Handler) ([]groupRead, error) {
		if h.claims.Passthrough() {
			return nil, nil
		}
		names, err := first(mostSlotGroups, group.Names(ctx, h.claims))
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
	p := slotGroupsPage{Fresh: fresh, More: len(all) == mostSlotGroups}
	all, p.Pager = paged(q, all)
	for _, r := range all {
		if r.err != "" {
			p.Groups = append(p.Groups, slotGroupRow{Name: r.name, Err: r.err})
			continue
		}
		p.Groups = append(p.Groups, newSlotGroup(r.state, b).row())
	}
	return p, nil
}

// slotGroup returns a group. missing reports that it does not exist.
func (q *request) slotGroup(name string) (g slotGroup, missing bool, fresh Fresh, err error) {
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
	return newSlotGroup(f.state, b), false, fresh, nil
}

// changeGroup evicts or readmits a member.
func (h *Handler) changeGroup(ctx context.Context, op Operation, why string) error {
	v, err := group.Open(ctx, h.claims, op.Group)
	if err != nil {
		return err
	}
	defer v.Close()
	if op.Action == ActionReadmit {
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
