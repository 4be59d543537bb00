package partitions

import (
	"slices"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// suspect has a member that may be alive taken off the list. The claims that it has now will be ended one by one;
// see Member.bury of group. The member that does so may be late with it, although it has the claim of the entry.
func (w *World) suspect(i int) error {
	m := w.change(i)
	m.suspected, w.tampered = true, true
	w.doomed = make([]*mvccpb.KeyValue, len(w.doomed))
	for p := range w.doomed {
		if w.owner(p) == m.instance() {
			own := w.etcd.Get(layout.Own(key(p)))
			w.doomed[p] = own.KV()
		}
	}
	return w.do(txn.Delete([]byte(list + m.name)))
}

// doomEvents are the ends of claims of a suspected member.
func (w World) doomEvents(all []event) []event {
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
