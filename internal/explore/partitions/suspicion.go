package partitions

import (
	"slices"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
)

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
