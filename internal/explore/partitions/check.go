package partitions

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/protocol"
)

// holds reports whether the guard of a claim holds.
func (w *World) holds(h *protocol.Held) bool {
	if wrong := w.scope.Wrong.Guard; wrong != nil {
		return w.etcd.Holds(wrong(h))
	}
	return w.etcd.Holds(h.Guard())
}

// passed checks that a release has handed the partition to the member in line, as long as nothing has failed.
func (w *World) passed(p int) error {
	line := w.etcd.Under(layout.Waiting(key(p)))
	if w.etcd.Get(layout.Own(key(p))).Modified > 0 || len(line) == 0 || w.left != w.scope.Faults || w.closing {
		return nil
	}
	return fmt.Errorf("partition %d was freed, although %s is in line and nothing has failed", p, line[0].Name)
}

// Check is described at search.State.
func (w World) Check() error {
	for p := range w.scope.Partitions {
		if err := w.oneOwner(p); err != nil {
			return err
		}
	}
	claims, places, notices := w.etcd.Under(layout.Own("")), w.etcd.Under(layout.Lines()), w.etcd.Under(layout.Sessions())
	for _, k := range slices.Concat(claims, places, notices) {
		if err := w.accounted(k); err != nil {
			return err
		}
	}
	return nil
}

// oneOwner checks that no guard of a partition holds but that of its owner, and that one member believes to own it,
// unless a claim was ended before its owner could know.
func (w World) oneOwner(p int) error {
	h, _ := protocol.DecodeHolder([]byte(w.etcd.Get(layout.Own(key(p))).Value)) // without a value, no claim
	for i := range w.guards {
		if g := &w.guards[i]; g.Key == key(p) && g.ID != h.Claim {
			return fmt.Errorf("partition %d has the owner %q, and the guard of %q holds", p, h.Claim, g.ID)
		}
	}
	var believe []string
	for i := range w.members {
		if r := &w.members[i].runs[p]; r.held != nil && r.end == nil && !w.members[i].ended {
			believe = append(believe, w.members[i].name)
		}
	}
	if len(believe) > 1 && !w.tampered {
		return fmt.Errorf("%s believe that they own partition %d", strings.Join(believe, " and "), p)
	}
	return nil
}

// accounted checks that a key on the lease of a session belongs to something that its member knows of. Otherwise it
// would stay for as long as the session.
func (w World) accounted(k *etcdmodel.Key) error {
	m := w.holder(k.Lease)
	if m == nil {
		return nil
	}
	claim := protocol.PlacedID([]byte(k.Name))
	if strings.HasPrefix(k.Name, layout.Own("")) {
		h, _ := protocol.DecodeHolder([]byte(k.Value)) // all are written by members
		claim = h.Claim
	}
	does := func(r run) bool { return r.att != nil && r.att.ID == claim || r.held != nil && r.held.ID == claim }
	if slices.ContainsFunc(m.runs, does) || slices.ContainsFunc(m.chores, func(c chore) bool { return c.claim == claim }) {
		return nil
	}
	return fmt.Errorf("%s is there for %s, of which its member knows nothing", k.Name, claim)
}

// Calm is described at search.State. In the end all members leave.
func (w World) Calm() (event, bool) {
	for i := range w.members {
		if all := w.requestEvents(nil, i); len(all) > 0 {
			return all[0], true
		}
	}
	now := w.present()
	for i := range w.members {
		if all := w.memberEvents(nil, i, now); len(all) > 0 {
			return all[0], true
		}
	}
	if all := w.doomEvents(w.leaseEvents(nil)); len(all) > 0 {
		return all[0], true
	}
	for i := range w.members {
		if all := w.impatience(nil, i, 0); len(all) > 0 {
			return all[0], true
		}
	}
	if !w.closing {
		return w.event(told("all members were told to leave"), (*World).leaveAll), true
	}
	return event{}, false
}

// leaveAll has all members leave, after they have come to rest.
func (w *World) leaveAll() error {
	if err := w.atRest(); err != nil {
		return fmt.Errorf("nothing happens any more, and %w", err)
	}
	w.closing = true
	for i := range w.members {
		if w.members[i].alive() {
			if err := w.leave(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// atRest returns what is wrong if each member has done all that it had to do.
func (w World) atRest() error {
	now := w.present()
	target := now.assignment().Plan(nil).Target
	for p, name := range target {
		if owner := now.owners[p]; owner == "" && name != "" || owner != "" && owner[:1] != name {
			return fmt.Errorf("partition %d, which %q is to have, is owned by %q", p, name, owner)
		}
		if k := w.etcd.Under(layout.Waiting(key(p))); len(k) > 0 {
			return fmt.Errorf("%s is in line", k[0].Name)
		}
		for i := range w.members {
			if r := &w.members[i].runs[p]; r.att != nil || r.end != nil || (r.held != nil) != (w.members[i].name == name) {
				return fmt.Errorf("%s does not know that partition %d is owned by %q", w.members[i].name, p, name)
			}
		}
	}
	return nil
}

// Settled is described at search.State.
func (w World) Settled() error {
	if all := w.etcd.Under(""); len(all) > 0 {
		return fmt.Errorf("%s is left", all[0].Name)
	}
	return nil
}
