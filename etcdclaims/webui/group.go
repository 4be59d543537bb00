package webui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/explain"
)

const (
	// mostCells is how many cells a strip has. Each stands for one partition, or for several.
	mostCells = 1024
	// memberColors is how many colors the style sheet has for members.
	memberColors = 12
)

// groupPage is a group of partitions: its members, a strip of all partitions, and a list of some.
type groupPage struct {
	Name       string
	Missing    bool
	Group      partitionGroupRow
	Members    []memberRow
	Cells      []cell
	Each       int // partitions in a cell, but for the last
	Partitions []partitionRow
	Pager      pager // of partitions; Prev and Next are the first partitions of those pages, and 1 greater
	Fresh      freshness
}

// The columns that a table has only if one of its rows has something to show in them.

func (p groupPage) HasZone() bool {
	return slices.ContainsFunc(p.Members, func(m memberRow) bool { return m.Zone != "" })
}

func (p groupPage) HasUntil() bool {
	return slices.ContainsFunc(p.Members, func(m memberRow) bool { return !m.Until.IsZero() })
}

func (p groupPage) HasTarget() bool { return slices.ContainsFunc(p.Partitions, partitionRow.Moves) }

// memberRow is a member, or an owner of partitions that is not on the list.
type memberRow struct {
	explain.PartitionMember
	Number int // in the strip
	Class  string

	CanEvict, CanReadmit bool
}

// cell is one partition in the strip, or several.
type cell struct {
	Text  string // the number of the member that owns most of its partitions; empty if none does
	Class string
	Title string
	From  int // its first partition
}

// partitionRow is a partition in the list.
type partitionRow struct {
	Partition int
	Key       string
	Number    int
	Class     string
	Member    string
	Holder    etcdclaims.Info
	Reserved  string
	Target    string
}

// Moves reports whether the partition is to go to another member.
func (r partitionRow) Moves() bool { return r.Target != "" && r.Target != r.Member }

func (q *request) group() (any, error) {
	p := groupPage{Name: q.param("group")}
	if q.h.claims.Passthrough() {
		p.Missing = true
		return p, nil
	}
	g, missing, fresh, err := q.partitionGroup(p.Name)
	if err != nil {
		return nil, err
	}
	if p.Fresh, p.Missing = fresh, missing; missing || fresh.At.IsZero() {
		return p, nil
	}
	p.Group = g.row()
	p.Members = g.memberRows()
	for i := range p.Members {
		m := &p.Members[i]
		if m.State == explain.StateUnlisted {
			continue
		}
		op := Operation{Group: p.Name, Member: m.Name}
		if op.Action = actionReadmit; m.State == explain.StateEvicted {
			m.CanReadmit = q.can(op)
		} else {
			op.Action = actionEvict
			m.CanEvict = q.can(op)
		}
		m.Why = q.value(FieldNote, m.Why)
	}
	number := numbers(p.Members)
	p.Cells, p.Each = g.strip(number)
	from, _ := strconv.Atoi(q.param("from"))
	from = min(max(from, 0), g.Partitions-1) / pageSize * pageSize
	to := min(from+pageSize, g.Partitions)
	p.Pager = pager{First: from, Last: to - 1, Total: g.Partitions}
	if from > 0 {
		p.Pager.Prev = from - pageSize + 1
	}
	if to < g.Partitions {
		p.Pager.Next = to + 1
	}
	for partition := from; partition < to; partition++ {
		o, holder := g.Assigned.Owners[partition], g.Holder(partition)
		n := number[holder.Instance]
		p.Partitions = append(p.Partitions, partitionRow{
			Partition: partition,
			Key:       g.PartitionKey(partition),
			Number:    n,
			Class:     colorOf(n),
			Member:    o.Member,
			Holder:    holder,
			Reserved:  o.Reserved,
			Target:    g.Plan.Target[partition],
		})
	}
	return p, nil
}

// memberRows returns the members, and then the owners of partitions that are not on the list.
func (g partitionGroup) memberRows() (rows []memberRow) {
	for i, m := range g.AllMembers() {
		rows = append(rows, memberRow{PartitionMember: m, Number: i + 1, Class: colorOf(i + 1)})
	}
	return rows
}

// numbers returns the numbers of members in the strip, by instance.
func numbers(members []memberRow) map[string]int {
	of := make(map[string]int, len(members))
	for _, m := range members {
		if m.Instance != "" {
			of[m.Instance] = m.Number
		}
	}
	return of
}

// colorOf is the class of a member's number in the style sheet; 0 means no owner.
func colorOf(number int) string {
	if number == 0 {
		return "free"
	}
	return fmt.Sprintf("m%d", (number-1)%memberColors)
}

// strip returns the cells of all partitions, and how many partitions each stands for.
func (g partitionGroup) strip(number map[string]int) (cells []cell, each int) {
	each = (g.Partitions + mostCells - 1) / mostCells
	for from := 0; from < g.Partitions; from += each {
		cells = append(cells, g.cell(from, min(from+each, g.Partitions), number))
	}
	return cells, each
}

// cell returns the cell of a range of partitions.
func (g partitionGroup) cell(from, to int, number map[string]int) cell {
	owners := make(map[string]int) // number of partitions by owner; "" stands for free partitions
	numbered := make(map[int]int)  // partitions, by the number of the owner
	for partition := from; partition < to; partition++ {
		holder, name := g.Holder(partition), ""
		if holder.Held {
			name = cmp.Or(g.Assigned.Owners[partition].Member, holder.Owner)
		}
		owners[name]++
		numbered[number[holder.Instance]]++
	}
	most := slices.SortedFunc(maps.Keys(numbered), func(a, b int) int {
		return cmp.Or(cmp.Compare(numbered[b], numbered[a]), cmp.Compare(a, b))
	})
	c := cell{From: from, Class: colorOf(most[0])}
	if most[0] > 0 {
		c.Text = strconv.Itoa(most[0])
	}
	if len(most) > 1 {
		c.Class += " part"
	}
	if numbered[0] > 0 {
		c.Class += " gap"
	}
	c.Title = g.titleOf(from, to, owners)
	return c
}

// titleOf describes the owners of a range of partitions.
func (g partitionGroup) titleOf(from, to int, owners map[string]int) string {
	nobody := "nobody"
	if reserved := g.Assigned.Owners[from].Reserved; reserved != "" && to == from+1 {
		nobody = "nobody, reserved for " + reserved
	}
	if to == from+1 {
		for name := range owners {
			return fmt.Sprintf("partition %d: %s", from, visible(cmp.Or(name, nobody)))
		}
	}
	var parts []string
	names := slices.SortedFunc(maps.Keys(owners), func(a, b string) int {
		return cmp.Or(cmp.Compare(owners[b], owners[a]), cmp.Compare(a, b))
	})
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %d", visible(cmp.Or(name, nobody)), owners[name]))
	}
	return fmt.Sprintf("partitions %d–%d: %s", from, to-1, strings.Join(parts, ", "))
}
