package partitions

import (
	"fmt"
	"slices"
	"sync"

	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/explore/driver"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// state is how far a member has come.
type state byte

const (
	outside state = iota // it has not joined
	joined
	lost    // its entry is on a lease that has ended, or will: it joins again
	leaving // its entry is about to be removed
	parting // it is off the list, and gives its partitions up
	gone
	dead // its process has died
)

// member is a process. Its fields are values, or are never changed once they are set.
type member struct {
	name      string
	state     state
	life      int8  // which of its processes it is
	lease     int64 // of the session; 0 without a session
	ended     bool  // the session has ended, as far as the member knows
	knows     bool  // its view has its entry; see Member.since of group
	suspected bool  // another has taken the claim of its entry, which it does not know yet
	accused   bool  // and that one may take it off the list, until it joins again
	view      view
	runs      []run // by partition
	chores    []chore

	code *code // of all that, nil after a change
}

// view is what a member knows of the group: see group.View.
type view struct {
	listed []string // by member: the instance of its entry, or ""
	owners []string // by partition: the instance of the owner, or ""
}

func (m *member) instance() string { return fmt.Sprint(m.name, m.life) }

func (m *member) layout() protocol.Layout {
	return protocol.Layout{Prefix: prefix, Instance: m.instance()}
}

func (m *member) alive() bool { return m.state != outside && m.state != gone && m.state != dead }

// isOver reports whether the session with the lease has ended, as far as the member knows.
func (m *member) isOver(lease int64) bool { return m.ended || m.lease != lease }

// encoded returns the bytes of the member.
func (m *member) encoded() *code {
	if m.code != nil {
		return m.code
	}
	c := &code{Code: make([]byte, 0, 512)}
	c.Code = append(c.Code, byte(m.state), byte(m.life))
	c.Bool(m.ended)
	c.Bool(m.knows)
	c.Bool(m.suspected)
	c.Bool(m.accused)
	c.Int(m.lease)
	for _, s := range slices.Concat(m.view.listed, m.view.owners) {
		c.Text(s)
	}
	for p := range m.runs {
		m.runs[p].encode()
		c.add(m.runs[p].code)
	}
	c.Int(int64(len(m.chores)))
	for i := range m.chores {
		c.add(&m.chores[i].code)
	}
	m.code = c
	return c
}

// session makes sure that the member has a session, and returns its lease.
func (w *World) session(i int) (int64, error) {
	m := w.change(i)
	if m.lease != 0 && !m.ended {
		return m.lease, nil
	}
	w.leases++
	m.lease, m.ended = leases+w.leases, false
	next, err := w.etcd.Grant(m.lease)
	w.etcd = next
	return m.lease, err
}

// join puts the entry of a member; see Member.register of group. It replaces that of an earlier process.
func (w *World) join(i int) error {
	lease, err := w.session(i)
	if err != nil {
		return err
	}
	if !w.etcd.Lives(lease) {
		return w.lose(i)
	}
	m := w.change(i)
	m.state, m.knows, m.suspected, m.accused = joined, false, false, false
	return w.do(txn.Put([]byte(list+m.name), m.instance(), lease))
}

// do carries out an operation.
func (w *World) do(op *pb.RequestOp) error {
	_, err := w.carryOut(&pb.TxnRequest{Success: []*pb.RequestOp{op}})
	return err
}

// leave begins to take a member off the list. It leaves all lines; see Member.step.
func (w *World) leave(i int) error {
	w.change(i).state = leaving
	return w.leaveLines(i, func(int) bool { return true })
}

// leaveLines ends the waits for some partitions.
func (w *World) leaveLines(i int, of func(p int) bool) error {
	for p := range w.members[i].runs {
		if w.members[i].runs[p].att != nil && of(p) {
			if err := w.stop(i, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// depart removes the entry of a member, if it is its own; see Member.depart.
func (w *World) depart(i int) error {
	m := w.change(i)
	m.state = parting
	if w.etcd.Get(list+m.name).Value != m.instance() {
		return nil
	}
	return w.do(txn.Delete([]byte(list + m.name)))
}

// lose ends the session of a member, and with it all that is on its lease; see lease.Session.Die.
func (w *World) lose(i int) error {
	m := w.change(i)
	if m.ended {
		return nil
	}
	if m.ended = true; m.state == joined {
		m.state = lost
	}
	for _, c := range m.chores {
		w.forsake(c.sent)
	}
	m.chores = nil
	for p := range m.runs {
		r := w.changeRun(i, p)
		switch {
		case r.held != nil:
			w.forsake(r.sent)
			*r = run{}
		case r.att != nil && r.do == protocol.DoWait:
			if err := w.step(i, p, driver.SessionEnded); err != nil {
				return err
			}
		}
	}
	return nil
}

// die ends the process of a member.
func (w *World) die(i int) error {
	m := w.change(i)
	for _, c := range m.chores {
		w.forsake(c.sent)
	}
	for p := range m.runs {
		w.forsake(m.runs[p].sent)
	}
	m.state, m.knows, m.suspected, m.accused = dead, false, false, false
	m.chores, m.runs = nil, make([]run, len(m.runs))
	m.view = view{listed: make([]string, len(w.members)), owners: make([]string, len(m.runs))}
	return nil
}

// restart puts another process in the place of a dead one, which may join.
func (w *World) restart(i int) error {
	m := w.change(i)
	m.life++
	m.state, m.lease, m.ended = outside, 0, false
	return nil
}

// present is what a view has that is not late.
func (w World) present() view {
	v := view{listed: make([]string, len(w.members)), owners: make([]string, w.scope.Partitions)}
	for i := range v.listed {
		v.listed[i] = w.etcd.Get(list + w.members[i].name).Value
	}
	for p := range v.owners {
		v.owners[p] = w.owner(p)
	}
	return v
}

// owner returns the instance that owns a partition.
func (w World) owner(p int) string {
	h, err := protocol.DecodeHolder([]byte(w.etcd.Get(layout.Own(key(p))).Value))
	if err != nil {
		return ""
	}
	return h.Instance
}

// assignment is the view as group's Assignment; see list.assign.
func (v view) assignment() group.Assignment {
	a := group.Assignment{Owners: make([]group.Owner, len(v.owners))}
	for i, instance := range v.listed {
		if instance != "" {
			a.Members = append(a.Members, group.MemberInfo{Name: string(rune('A' + i)), Instance: instance})
		}
	}
	for p, instance := range v.owners {
		if instance != "" {
			a.Owners[p] = group.Owner{Member: instance[:1], Instance: instance}
		}
	}
	return a
}

// plans has the plans that were made so far: there are few.
var plans sync.Map

type planned struct {
	without    string // of the member that leaves, or ""
	partitions int
	listed     [4]string
	owners     [4]string
}

// plan returns the plan of the group, without the member of that name if it is not "".
func (w World) plan(v view, name, without string) group.Plan {
	if wrong := w.scope.Wrong.Plan; wrong != nil {
		return wrong(name, v.assignment())
	}
	at := planned{without: without, partitions: len(v.owners)}
	copy(at.listed[:], v.listed)
	copy(at.owners[:], v.owners)
	if p, ok := plans.Load(at); ok {
		return p.(group.Plan) //nolint:forcetypeassert // the map has nothing else
	}
	p := v.assignment().Plan(nil)
	if without != "" {
		p = v.assignment().Plan(nil, without)
	}
	plans.Store(at, p)
	return p
}

// offers returns the instance that gets a partition of the member, "" if it keeps it: see Member.offers, and
// Member.handOver of a member that leaves.
func (w World) offers(i, p int) string {
	m := &w.members[i]
	instance := func(name string) string {
		if name == "" {
			return ""
		}
		return m.view.listed[name[0]-'A']
	}
	if m.state == parting {
		return instance(w.plan(m.view, m.name, m.name).Target[p])
	}
	for _, move := range w.plan(m.view, m.name, "").Moves {
		if owner := m.view.owners[p]; move.Partition == p && move.From == m.name && owner != "" && owner[:1] == move.From {
			return instance(move.To)
		}
	}
	return ""
}

// firstInLine returns the instance that is the first in line for a partition; see Member.deliver.
func (w World) firstInLine(p int) string {
	created, instance := int64(0), ""
	for _, k := range w.etcd.Under(layout.Waiting(key(p))) {
		if created == 0 || k.Created < created {
			h, _ := protocol.DecodeHolder([]byte(k.Value)) // all are written by members
			created, instance = k.Created, h.Instance
		}
	}
	return instance
}

// suspect has another member take the claim of the entry of a member that may be alive.
func (w *World) suspect(i int) error {
	m := w.change(i)
	m.suspected, m.accused, w.tampered = true, true, true
	return nil
}

// bury takes a suspected member off the list. The claims that it has then will be ended one by one, maybe late; see
// Member.bury of group.
func (w *World) bury(i int) error {
	m := w.change(i)
	m.accused = false
	w.doomed = slices.Clone(w.doomed)
	for p := range w.doomed {
		if w.owner(p) == m.instance() {
			own := w.etcd.Get(layout.Own(key(p)))
			w.doomed[p] = own.KV()
		}
	}
	if w.etcd.Get(list+m.name).Value != m.instance() {
		return nil
	}
	return w.do(txn.Delete([]byte(list + m.name)))
}

// doomEvents are what befalls suspected members, and the ends of their claims.
func (w World) doomEvents(all []event) []event {
	for i := range w.members {
		if w.members[i].accused {
			all = append(all, w.event(told("%s was taken off the list", w.members[i].name), func(n *World) error { return n.bury(i) }))
		}
	}
	for p, own := range w.doomed {
		if own == nil {
			continue
		}
		all = append(all, w.event(told("partition %d was taken from a suspected member", p), func(n *World) error {
			n.doomed = slices.Clone(n.doomed)
			n.doomed[p] = nil
			_, err := n.carryOut(protocol.Force{Layout: layout, Key: key(p), Own: own}.Silently().In)
			return err
		}))
	}
	return all
}

// lossEvents are what a member hears of claims that were taken from it.
func (w World) lossEvents(all []event, i int) []event {
	m := &w.members[i]
	if w.scope.Faults[Suspicion] == 0 { // nobody else takes a claim whose lease lives
		return all
	}
	for p := range m.runs {
		if r := &m.runs[p]; r.held != nil && r.end == nil && !m.ended && w.etcd.Lives(m.lease) && !w.holds(r.held) {
			all = append(all, w.event(told("%s found out that it had lost partition %d", m.name, p), func(n *World) error {
				*n.changeRun(i, p) = run{}
				return nil
			}))
		}
	}
	return all
}
