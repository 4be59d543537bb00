package partitions

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/etcdclaims/claims/internal/explore/driver"
	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/protocol"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

type event = search.Event[World]

// Events is described at search.State.
func (w World) Events() []event {
	all := make([]event, 0, 16)
	for n, s := range w.strays {
		all = append(all, w.event(told("%s's late %s arrived", w.members[s.member].name, s.step), func(n2 *World) error {
			n2.strays = slices.Delete(slices.Clone(n2.strays), n, n+1)
			_, _ = n2.carryOut(s.in) // its lease may be gone
			return nil
		}))
	}
	now := w.present()
	for i := range w.members {
		all = w.requestEvents(all, i)
		all = w.memberEvents(all, i, now)
		all = w.faultEvents(all, i)
	}
	return w.leaseEvents(w.doomEvents(all))
}

// leaseEvents are the ends of leases that nobody renews.
func (w World) leaseEvents(all []event) []event {
	for _, id := range w.etcd.Leases() {
		if w.holder(id) == nil {
			all = append(all, w.event(told("etcd ended a lease that nobody renews"), func(n *World) error {
				return n.end(id)
			}))
		}
	}
	return all
}

// holder returns the member whose session, which goes on, has the lease.
func (w World) holder(lease int64) *member {
	for i := range w.members {
		if m := &w.members[i]; m.alive() && !m.ended && m.lease == lease {
			return m
		}
	}
	return nil
}

// slot is where a member waits for an answer: in its run for a partition, or in a chore.
type slot struct{ member, run, chore int }

func (w *World) sent(at slot) *request {
	if m := &w.members[at.member]; at.run < 0 {
		return m.chores[at.chore].sent
	}
	return w.members[at.member].runs[at.run].sent
}

// requestEvents are what can become of the requests of a member.
func (w World) requestEvents(all []event, i int) []event {
	for _, at := range w.slots(i) {
		all = w.slotEvents(all, at)
	}
	return all
}

// slots are where a member waits for answers.
func (w *World) slots(i int) (all []slot) {
	for p := range w.members[i].runs {
		if w.members[i].runs[p].sent != nil {
			all = append(all, slot{i, p, -1})
		}
	}
	for n := range w.members[i].chores {
		all = append(all, slot{i, -1, n})
	}
	return all
}

func (w World) slotEvents(all []event, at slot) []event {
	s, name := w.sent(at), w.members[at.member].name
	of := ""
	if at.run >= 0 {
		of = fmt.Sprint(" for partition ", at.run)
	}
	unanswered := func(n *World) error { return n.unanswered(at) }
	if !s.isAnswered() {
		all = append(all, w.event(told("%s's %s arrived", name, s.step+of), func(n *World) error {
			if err := n.arrive(at); err != nil || n.scope.Grain == Fine {
				return err
			}
			return n.answered(at)
		}))
		late := told("%s waited no longer for the answer to its %s, which had not arrived", name, s.step+of)
		if all = w.fault(all, LostRequest, late, unanswered); w.scope.Grain == Fine {
			return all
		}
		return w.fault(all, LostReply, told("%s's %s arrived, and the answer was lost", name, s.step+of), func(n *World) error {
			if err := n.arrive(at); err != nil {
				return err
			}
			return n.unanswered(at)
		})
	}
	got := told("%s got the answer to its %s", name, s.step+of)
	all = append(all, w.event(got, func(n *World) error { return n.answered(at) }))
	return w.fault(all, LostReply, told("the answer to %s's %s was lost", name, s.step+of), unanswered)
}

// arrive carries a request out.
func (w *World) arrive(at slot) error {
	s := w.sent(at)
	before := w.etcd.Revision()
	resp, refused := w.carryOut(s.in)
	changed := w.etcd.Revision() > before
	if refused != nil && !errors.Is(refused, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("etcd refuses the %s of %s: %w", s.step, w.members[at.member].name, refused)
	}
	if at.run >= 0 {
		r := w.changeRun(at.member, at.run)
		if r.sent = s.answered(resp, refused, changed); r.end != nil && r.did == protocol.EndSend {
			return w.passed(at.run)
		}
		return nil
	}
	m := w.change(at.member)
	m.chores = slices.Clone(m.chores)
	c := &m.chores[at.chore]
	c.sent = s.answered(resp, refused, changed)
	c.encode()
	return nil
}

// answered gives a member the answer to its request.
func (w *World) answered(at slot) error {
	i, s := at.member, w.sent(at)
	if at.run < 0 {
		c := w.takeChore(at)
		switch {
		case s.err != nil && !w.etcd.Lives(w.members[i].lease):
			return w.lose(i)
		case c.rest != nil:
			return w.rest(i, c, driver.EndAnswer(s.resp, s.err))
		}
		return s.err
	}
	r := w.changeRun(i, at.run)
	r.sent = nil
	if r.att == nil {
		return w.endStep(i, at.run, driver.EndAnswer(s.resp, s.err))
	}
	if s.err != nil && !w.members[i].isOver(r.att.Lease) {
		if err := w.lose(i); err != nil {
			return err
		}
	}
	return w.step(i, at.run, driver.Answer(s.resp, s.err))
}

// unanswered ends the wait for an answer.
func (w *World) unanswered(at slot) error {
	i, s := at.member, w.sent(at)
	w.forsake(s)
	if at.run < 0 {
		c := w.takeChore(at)
		if c.rest != nil {
			return w.rest(i, c, protocol.EndEvent{Kind: protocol.EndUnknown})
		}
		return w.chore(i, c, c.again)
	}
	r := w.changeRun(i, at.run)
	r.sent = nil
	if r.att == nil {
		return w.endStep(i, at.run, driver.NoEndAnswer(r.did))
	}
	return w.step(i, at.run, driver.NoAnswer(r.do))
}

func (w *World) takeChore(at slot) chore {
	m := w.change(at.member)
	c := m.chores[at.chore]
	m.chores = slices.Delete(slices.Clone(m.chores), at.chore, at.chore+1)
	return c
}

// memberEvents are what a member does by itself, or hears of.
func (w World) memberEvents(all []event, i int, now view) []event {
	m := &w.members[i]
	if !m.alive() {
		return all
	}
	add := func(what func() string, do func(n *World) error) {
		all = append(all, w.event(func() string { return m.name + " " + what() }, do))
	}
	if m.state == joined && m.suspected {
		add(told("found out that it had been suspected"), func(n *World) error {
			m := n.change(i)
			m.state, m.suspected = lost, false
			return nil
		})
	}
	all = w.lossEvents(all, i)
	if m.lease != 0 && !m.ended && !w.etcd.Lives(m.lease) {
		add(told("found out that its session had ended"), func(n *World) error { return n.lose(i) })
	}
	for p := range m.runs {
		if m.runs[p].att != nil && m.runs[p].do == protocol.DoWait {
			all = w.waitEvents(all, i, p)
		}
	}
	news := m.state != leaving && (!slices.Equal(m.view.listed, now.listed) || m.state == joined && !m.knows)
	if w.scope.Grain == Coarse && (news || !slices.Equal(m.view.owners, now.owners)) {
		add(told("read the members and the owners of partitions"), func(n *World) error {
			m := n.change(i)
			m.view, m.knows = now, m.knows || m.state == joined
			return nil
		})
	} else if news {
		add(told("read the list of members"), func(n *World) error {
			m := n.change(i)
			m.view.listed, m.knows = now.listed, m.knows || m.state == joined
			return nil
		})
	}
	for p := range now.owners {
		if w.scope.Grain != Coarse && m.view.owners[p] != now.owners[p] {
			add(told("saw who owns partition %d", p), func(n *World) error {
				m := n.change(i)
				m.view.owners = slices.Clone(m.view.owners)
				m.view.owners[p] = now.owners[p]
				return nil
			})
		}
	}
	switch {
	case m.state == leaving:
		add(told("was off the list"), func(n *World) error { return n.depart(i) })
	case m.state == lost:
		add(told("joined again"), func(n *World) error { return n.join(i) })
	case m.state == parting && len(m.chores) == 0 && m.isIdle():
		add(told("has left"), func(n *World) error { return n.close(i) })
	}
	if m.state == parting || m.knows && m.state != leaving && m.view.listed[i] == m.instance() {
		all = w.moveEvents(all, i)
	}
	return all
}

func (m *member) isIdle() bool {
	return !slices.ContainsFunc(m.runs, func(r run) bool { return r.att != nil || r.held != nil })
}

// close ends the session of a member that has left.
func (w *World) close(i int) error {
	m := w.change(i)
	m.state, m.knows = gone, false
	m.view = view{listed: make([]string, len(w.members)), owners: make([]string, len(m.runs))}
	if !m.ended && w.etcd.Lives(m.lease) {
		return w.end(m.lease)
	}
	return nil
}

// moveEvents are what a member does about its partitions; see Member.step, and Member.handOver of one that leaves.
func (w World) moveEvents(all []event, i int) []event {
	m := &w.members[i]
	var target []string
	if m.state != parting {
		target = w.plan(m.view, m.name, "").Target
	}
	for p := range m.runs {
		r := &m.runs[p]
		add := func(what string, do func(n *World) error) {
			all = append(all, w.event(told("%s "+what, m.name, p), do))
		}
		isTarget := target != nil && target[p] == m.name
		switch to := ""; {
		case r.att == nil && r.held == nil && isTarget:
			add("began to wait for partition %d", func(n *World) error { return n.begin(i, p) })
		case r.att != nil && !isTarget && r.do == protocol.DoWait:
			add("left the line for partition %d", func(n *World) error { return n.stop(i, p) })
		case r.att != nil && !isTarget && w.left[Cut] > 0:
			add("waited no longer for partition %d, while a request for it was under way", func(n *World) error {
				n.left[Cut]--
				return n.stop(i, p)
			})
		case r.held != nil && r.end == nil:
			if to = w.offers(i, p); to == "" && m.state != parting || to != "" && w.firstInLine(p) != to {
				continue
			}
			add("gave partition %d up, for "+cmp.Or(to, "nobody"), func(n *World) error { return n.giveUp(i, p) })
		}
	}
	return all
}

// waitEvents are what a member in line hears; see inLine.Await of internal/line.
func (w World) waitEvents(all []event, i, p int) []event {
	m := &w.members[i]
	r := &m.runs[p]
	hears := func(what string, ev protocol.Event) {
		told := told("%s %s for partition %d", m.name, what, p)
		all = append(all, w.event(told, func(n *World) error { return n.step(i, p, ev) }))
	}
	if k := w.etcd.Get(m.layout().Notice(m.instance(), r.att.ID)); k.Modified > 0 {
		hears("read its notice", protocol.Event{Kind: protocol.Noticed, KV: k.KV()})
	}
	awaited, rev := layout.Own(key(p)), int64(0) // see awaitedKey of internal/line
	switch {
	case r.pos.Pred != nil:
		awaited, rev = string(r.pos.Pred.Key), r.pos.Pred.ModRevision
	case r.pos.Own != nil:
		rev = r.pos.Own.ModRevision
	}
	if r.pos.Pred == nil && r.pos.Behind || w.etcd.Get(awaited).Modified != rev {
		hears("looked again at the line", protocol.Event{Kind: protocol.Woken})
	}
	return all
}

// faultEvents are what can happen to a member.
func (w World) faultEvents(all []event, i int) []event {
	m := &w.members[i]
	if m.state == outside {
		return append(all, w.event(told("%s joined", m.name), func(n *World) error { return n.join(i) }))
	}
	add := func(f Fault, when bool, what string, do func(n *World) error) {
		if when {
			all = w.fault(all, f, told(what, m.name), do)
		}
	}
	add(Restart, m.state == dead, "%s was started again", func(n *World) error { return n.restart(i) })
	if !m.alive() {
		return all
	}
	goesOn := !m.ended && w.etcd.Lives(m.lease)
	add(Crash, true, "%s died", func(n *World) error { return n.die(i) })
	add(Silence, goesOn, "the deadline of %s passed", func(n *World) error { return n.lose(i) })
	add(Revocation, goesOn, "the lease of %s was revoked before its deadline", func(n *World) error {
		n.tampered = !n.scope.Wrong.Overrun
		return n.end(m.lease)
	})
	entered := m.state == joined || m.state == leaving || m.state == parting
	add(Suspicion, goesOn && entered && !m.suspected && len(w.members) > 1, "%s was suspected", func(n *World) error { return n.suspect(i) })
	add(Leave, m.state == joined || m.state == lost, "%s began to leave", func(n *World) error { return n.leave(i) })
	if w.left[Impatience] > 0 {
		all = w.impatience(all, i, 1)
	}
	return all
}

// impatience is the end of the time for which a member that leaves waits for the next owners; see successorTime.
func (w World) impatience(all []event, i int, spends int8) []event {
	m := &w.members[i]
	if m.state != parting || !slices.ContainsFunc(m.runs, func(r run) bool { return r.held != nil && r.end == nil }) {
		return all
	}
	told := told("%s stopped waiting for the members that take over its partitions", m.name)
	return append(all, w.event(told, func(n *World) error {
		n.left[Impatience] -= spends
		for p, r := range n.members[i].runs {
			if r.held != nil && r.end == nil {
				if err := n.giveUp(i, p); err != nil {
					return err
				}
			}
		}
		return nil
	}))
}
