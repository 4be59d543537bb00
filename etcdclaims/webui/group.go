package webui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/doctor"
)

const (
	// mostCells is how many cells a strip has. Each stands for one slot, or for several.
	mostCells = 1024
	// memberColors is how many colors the style sheet has for members.
	memberColors = 12
)

// groupPage is a group of slots: its members, a strip of all slots, and a list of some.
type groupPage struct {
	Name    string
	Missing bool
	Group   slotGroupRow
	Members []memberRow
	Cells   []cell
	Each    int // slots in a cell, but for the last
	Slots   []slotRow
	Pager   pager // of slots; Prev and Next are the first slots of those pages, and 1 greater
	Fresh   Fresh
}

// memberRow is a member, or an owner of slots that is not on the list.
type memberRow struct {
	doctor.SlotMember
	Number int // in the strip
	Class  string

	CanEvict, CanReadmit bool
}

// cell is one slot in the strip, or several.
type cell struct {
	Text  string // the number of the member that owns most of its slots; empty if none does
	Class string
	Title string
	From  int // its first slot
}

// slotRow is a slot in the list.
type slotRow struct {
	Slot     int
	Key      string
	Number   int
	Class    string
	Member   string
	Holder   etcdclaims.Info
	Reserved string
	Target   string
}

func (q *request) group() (any, error) {
	p := groupPage{Name: q.param("group")}
	if q.h.claims.Passthrough() {
		p.Missing = true
		return p, nil
	}
	g, missing, fresh, err := q.slotGroup(p.Name)
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
		if m.State == doctor.StateUnlisted {
			continue
		}
		op := Operation{Group: p.Name, Member: m.Name}
		if op.Action = ActionReadmit; m.State == doctor.StateEvicted {
			m.CanReadmit = q.can(op)
		} else {
			op.Action = ActionEvict
			m.CanEvict = q.can(op)
		}
		m.Why = q.value(FieldNote, m.Why)
	}
	number := numbers(p.Members)
	p.Cells, p.Each = g.strip(number)
	from, _ := strconv.Atoi(q.param("from"))
	from = min(max(from, 0), g.Slots-1) / pageSize * pageSize
	to := min(from+pageSize, g.Slots)
	p.Pager = pager{First: from, Last: to - 1, Total: g.Slots}
	if from > 0 {
		p.Pager.Prev = from - pageSize + 1
	}
	if to < g.Slots {
		p.Pager.Next = to + 1
	}
	for slot := from; slot < to; slot++ {
		o, holder := g.Assigned.Owners[slot], g.Holder(slot)
		n := number[holder.Instance]
		p.Slots = append(p.Slots, slotRow{Slot: slot, Key: g.SlotKey(slot), Number: n, Class: colorOf(n), Member: o.Member, Holder: holder, Reserved: o.Reserved, Target: g.Plan.Target[slot]})
	}
	return p, nil
}

// memberRows returns the members, and then the owners of slots that are not on the list.
func (g slotGroup) memberRows() (rows []memberRow) {
	for i, m := range g.AllMembers() {
		rows = append(rows, memberRow{SlotMember: m, Number: i + 1, Class: colorOf(i + 1)})
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

// strip returns the cells of all slots, and how many slots each stands for.
func (g slotGroup) strip(number map[string]int) (cells []cell, each int) {
	each = (g.Slots + mostCells - 1) / mostCells
	for from := 0; from < g.Slots; from += each {
		cells = append(cells, g.cell(from, min(from+each, g.Slots), number))
	}
	return cells, each
}

// cell returns the cell of a range of slots.
func (g slotGroup) cell(from, to int, number map[string]int) cell {
	owners := make(map[string]int) // number of slots by owner; "" stands for free slots
	numbered := make(map[int]int)  // slots, by the number of the owner
	for slot := from; slot < to; slot++ {
		holder, name := g.Holder(slot), ""
		if holder.Held {
			name = cmp.Or(g.Assigned.Owners[slot].Member, holder.Owner)
		}
		owners[name]++
		numbered[number[holder.Instance]]++
	}
	most := slices.SortedFunc(maps.Keys(numbered), func(a, b int) int { return cmp.Or(cmp.Compare(numbered[b], numbered[a]), cmp.Compare(a, b)) })
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

// titleOf describes the owners of a range of slots.
func (g slotGroup) titleOf(from, to int, owners map[string]int) string {
	nobody := "nobody"
	if reserved := g.Assigned.Owners[from].Reserved; reserved != "" && to == from+1 {
		nobody = "nobody, reserved for " + reserved
	}
	if to == from+1 {
		for name := range owners {
			return fmt.Sprintf("slot %d: %s", from, visible(cmp.Or(name, nobody)))
		}
	}
	var parts []string
	for _, name := range slices.SortedFunc(maps.Keys(owners), func(a, b string) int { return cmp.Or(cmp.Compare(owners[b], owners[a]), cmp.Compare(a, b)) }) {
		parts = append(parts, fmt.Sprintf("%s %d", visible(cmp.Or(name, nobody)), owners[name]))
	}
	return fmt.Sprintf("slots %d–%d: %s", from, to-1, strings.Join(parts, ", "))
}
