package world

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/protocol"
)

// changed looks at what a change of etcd has done.
func (w *World) changed(before etcdmodel.State) error {
	for _, k := range w.etcd.Under(done) {
		id := strings.TrimPrefix(k.Name, done)
		guarded := func(h protocol.Held) bool { return h.ID == id && before.Holds(h.Guard()) }
		if k.Modified > before.Get(k.Name).Modified && !slices.ContainsFunc(w.guards, guarded) {
			return fmt.Errorf("the operation of %s was carried out, although its guard did not hold", id)
		}
	}
	if w.scope.Faults[Restore] == 0 { // a claim that is gone never comes back
		w.guards = slices.DeleteFunc(slices.Clone(w.guards), func(h protocol.Held) bool { return !w.etcd.Holds(h.Has()) })
	}
	was, is := before.Get(recordKey), w.etcd.Get(recordKey)
	if err := w.recordChanged(was.Modified, is.Modified, was.Value, is.Value); err != nil {
		return err
	}
	now := w.etcd.Get(resource)
	if now.Modified > before.Get(resource).Modified {
		fence, err := strconv.ParseInt(now.Value, 10, 64)
		if err != nil {
			return err
		}
		if fence < w.written && !w.restored {
			return fmt.Errorf("a holder with the fence %d wrote after one with the fence %d", fence, w.written)
		}
		w.written = fence
	}
	if k := w.etcd.Get(layout.Own(userKey)); k.Modified > before.Get(k.Name).Modified {
		h, err := protocol.DecodeHolder([]byte(k.Value))
		if err != nil {
			return err
		}
		fence := h.Fence(k.Modified)
		if h.Kind != protocol.KindSlots && fence <= w.newest && !w.restored {
			return fmt.Errorf("the fence %d follows %d", fence, w.newest)
		}
		w.newest = fence
	}
	for _, k := range w.etcd.Under(layout.Own("")) {
		was, claim := before.Get(k.Name), claimOf(k.Value)
		if was.Modified == k.Modified || claim == "" {
			continue
		}
		if was.Value == k.Value {
			return fmt.Errorf("%s was put twice for %s", k.Name, claim)
		}
		if claim == claimOf(was.Value) || w.rewound {
			continue
		}
		if err := w.granted(before, k, claim); err != nil {
			return err
		}
	}
	return nil
}

// claimOf returns the id of the attempt in the value of a claim, "" if it is a record.
func claimOf(value string) string {
	_, rest, found := strings.Cut(value, `"claim":"`)
	if !found {
		return ""
	}
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// Check is described at search.State.
func (w World) Check() error {
	if err := w.oneOwner(); err != nil {
		return err
	}
	if err := w.oneBelief(); err != nil {
		return err
	}
	for _, k := range w.etcd.Under(layout.Own("")) {
		if err := w.accounted(k, claimOf(k.Value)); err != nil {
			return err
		}
	}
	for _, k := range w.etcd.Under(layout.Lines()) {
		if err := w.accounted(k, protocol.PlacedID([]byte(k.Name))); err != nil {
			return err
		}
	}
	for _, k := range w.etcd.Under(layout.Sessions()) {
		if err := w.accounted(k, protocol.PlacedID([]byte(k.Name))); err != nil {
			return err
		}
	}
	if err := w.checkWork(); err != nil {
		return err
	}
	return w.notes()
}

// oneOwner checks that the guards of two claims that exclude each other do not hold together.
func (w World) oneOwner() error {
	holds := 0
	var whole *protocol.Held
	for i := range w.guards {
		h := &w.guards[i]
		if !w.etcd.Holds(h.Guard()) {
			continue
		}
		if h.EpochRev != w.etcd.Get(layout.Epoch()).Modified {
			return fmt.Errorf("the guard of %s holds, although the epoch is another", h.ID)
		}
		holds++
		if _, ok := h.Mode.(protocol.Exclusive); ok {
			whole = h
		}
		if slots := h.Mode.Keys().Slots; slots > 0 && holds > slots && w.scope.Faults[Resize] == 0 {
			return fmt.Errorf("%d hold the %d slots", holds, slots)
		}
	}
	if whole != nil && holds > 1 {
		return fmt.Errorf("%d hold the key, one of them alone with the fence %d", holds, whole.Fence)
	}
	return nil
}

// oneBelief checks that no two clients believe to hold the key, as long as no claim was ended before its
// holder could know.
func (w World) oneBelief() error {
	if w.tampered {
		return nil
	}
	believes, whole := 0, false
	for i := range w.clients {
		c := &w.clients[i]
		if !c.alive() || c.term == nil || c.term.end != nil || c.ended || c.expired {
			continue
		}
		believes++
		_, ok := c.term.held.Mode.(protocol.Exclusive)
		whole = whole || ok
	}
	if whole && believes > 1 {
		return fmt.Errorf("%d clients believe that they hold the key", believes)
	}
	return nil
}

// accounted checks that a key on the lease of a session belongs to something that its client knows of. Otherwise
// it would stay for as long as the session.
func (w World) accounted(k *etcdmodel.Key, claim string) error {
	if claim == "" {
		return nil
	}
	c := w.owner(k.Lease)
	if c == nil || w.knows(c, claim) && !c.holdsAnother(k.Name, claim) || w.rewound || w.restored {
		return nil
	}
	return fmt.Errorf("%s is there for %s, of which its client knows nothing", k.Name, claim)
}

// owner returns the client whose session, which goes on, has the lease.
func (w World) owner(lease int64) *client {
	for i := range w.clients {
		if c := &w.clients[i]; c.alive() && !c.ended && c.lease == lease {
			return c
		}
	}
	return nil
}

func (w World) knows(c *client, claim string) bool {
	return c.att != nil && c.att.ID == claim || c.parted != nil && c.parted.ID == claim || c.term != nil && c.term.held.ID == claim ||
		slices.ContainsFunc(c.chores, func(ch chore) bool { return ch.claim == claim })
}

// holdsAnother reports whether the client holds another claim of the attempt than the key, of which it knows nothing else.
func (c *client) holdsAnother(key, claim string) bool {
	return strings.HasPrefix(key, layout.Own("")) && c.term != nil && c.term.held.ID == claim && key != layout.Own(c.term.held.Key) &&
		!slices.ContainsFunc(c.chores, func(ch chore) bool { return ch.claim == claim })
}

// notes checks that no note is left of a client that does nothing.
func (w World) notes() error {
	for _, k := range w.etcd.Under(layout.Note("")) {
		if c := w.owner(k.Lease); c != nil && c.att == nil && c.term == nil && len(c.chores) == 0 && c.parted == nil {
			return fmt.Errorf("%s is left", k.Name)
		}
	}
	return nil
}

// Calm is described at search.State.
func (w World) Calm() (search.Event[World], bool) {
	for m := range w.net {
		if w.net[m].of != stray {
			return w.messageEvents(nil, m)[0], true
		}
	}
	for i := range w.clients {
		if all := w.clientEvents(nil, i); len(all) > 0 {
			return all[0], true
		}
	}
	if all := w.renewalEvents(w.leaseEvents(nil)); len(all) > 0 {
		return all[0], true
	}
	return search.Event[World]{}, false
}

// Settled is described at search.State.
func (w World) Settled() error {
	for i := range w.clients {
		if c := &w.clients[i]; c.alive() {
			return fmt.Errorf("client %s waits for ever", c.name)
		}
	}
	for _, k := range w.etcd.Under(prefix) {
		switch {
		case k.Name == layout.Epoch(), k.Name == recordKey:
		case k.Name == layout.Own(userKey) && k.Lease == 0: // the record of slots, or of readers that have died
			if strings.Contains(k.Value, protocol.KindShared) && w.most == w.scope.most() {
				return fmt.Errorf("%s is left, although no reader has died", k.Name)
			}
		default:
			return fmt.Errorf("%s is left", k.Name)
		}
	}
	if w.begun > 0 {
		return w.settledWork()
	}
	return nil
}
