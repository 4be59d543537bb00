package world

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

type event = search.Event[World]

// told is a sentence that is made when it is needed.
func told(format string, args ...any) func() string {
	return func() string { return fmt.Sprintf(format, args...) }
}

// Events is described at search.State. What no other event can tell from its absence, now or later, happens at once.
func (w World) Events() []event {
	if quiet, is := w.quietEvent(); is {
		return []event{quiet}
	}
	all := make([]event, 0, 16)
	for m := range w.net {
		all = w.messageEvents(all, m)
	}
	for i := range w.clients {
		all = w.clientEvents(all, i)
		all = w.clientFaults(all, i)
	}
	return w.operatorEvents(w.renewalEvents(w.leaseEvents(all)))
}

// leaseEvents are the ends of leases that nobody renews.
func (w World) leaseEvents(all []event) []event {
	for _, id := range w.orphans() {
		all = append(all, w.leaseEnd(id))
	}
	return all
}

// orphans are the leases that nobody renews.
func (w World) orphans() []int64 {
	return slices.DeleteFunc(slices.Clone(w.etcd.Leases()), func(id int64) bool { return w.owner(id) != nil || w.moves(id) })
}

func (w World) leaseEnd(id int64) event {
	return w.event(told("etcd ended the lease %x, which nobody renews", id), func(n *World) error { return n.end(id) })
}

// quietEvent is an event that concerns nobody else, whatever comes: a first call sends its request, a client that
// leaves nothing ends its session, or a lease ends that no key has and no request names.
func (w World) quietEvent() (_ event, is bool) {
	if w.scope.Faults[Restore] > 0 {
		return event{}, false // a restore tells the time of each
	}
	for i := range w.clients {
		c := &w.clients[i]
		first := c.state == running && c.calls == 0 && c.lease == 0 && w.scope.Faults[Closing] == 0 && w.call(i).Work == Unrecorded
		if first || c.mayClose() && w.etcd.Lives(c.lease) && w.unused(c.lease) {
			return w.clientEvents(nil, i)[0], true
		}
	}
	for _, id := range w.orphans() {
		if w.unused(id) {
			return w.leaseEnd(id), true
		}
	}
	return event{}, false
}

// unused reports whether no key has the lease, and no request of its client is under way.
func (w World) unused(lease int64) bool {
	return !slices.ContainsFunc(w.etcd.Under("/"), func(k *etcdmodel.Key) bool { return k.Lease == lease }) &&
		!slices.ContainsFunc(w.net, func(m message) bool { return int64(letter(int(m.from))) == lease>>7 })
}

// messageEvents are what can become of a message.
func (w World) messageEvents(all []event, m int) []event {
	at := &w.net[m]
	name := w.clients[at.from].name
	switch {
	case at.of == stray:
		return append(all, w.event(told("%s's late %s arrived", name, at.step), func(n *World) error { return n.arrive(m) }))
	case at.isAnswered():
		tell := told("%s got the late answer to its %s, which %s", name, at.step, result(at.resp, at.err))
		return append(all, w.event(tell, func(n *World) error { return n.reply(m) }))
	}
	tell := func() string {
		_, resp, err := w.etcd.Txn(at.in)
		return fmt.Sprintf("%s's %s %s", name, at.step, result(resp, err))
	}
	all = append(all, w.event(tell, func(n *World) error {
		if err := n.arrive(m); err != nil {
			return err
		}
		return n.reply(m)
	}))
	add := func(f Fault, what string, do func(n *World) error) {
		all = w.fault(all, f, told(what, name, at.step), do)
	}
	add(LostRequest, "%s waited no longer for the answer to its %s, which had not arrived", func(n *World) error { return n.unanswered(m) })
	add(LostReply, "%s's %s arrived, and the answer was lost", func(n *World) error {
		if err := n.arrive(m); err != nil {
			return err
		}
		return n.unanswered(m)
	})
	add(LateReply, "%s's %s arrived, and the answer is late", func(n *World) error { return n.arrive(m) })
	add(Twice, "%s's %s arrived, and was sent again", func(n *World) error {
		_, _, bad := n.take(at)
		return bad
	})
	return all
}

// result tells what became of a request.
func result(resp *pb.TxnResponse, err error) string {
	switch {
	case err != nil:
		return "was refused: " + err.Error()
	case !resp.Succeeded:
		return "was answered by its second branch"
	}
	return "was carried out"
}

// moves reports whether a claim is about to be moved to a lease.
func (w World) moves(lease int64) bool {
	for i := range w.clients {
		for _, c := range w.clients[i].chores {
			if c.move != nil && c.move.Lease == lease {
				return true
			}
		}
	}
	return false
}

// clientEvents are what a client does by itself, or hears of.
func (w World) clientEvents(all []event, i int) []event {
	c := &w.clients[i]
	if !c.alive() {
		return all
	}
	add := func(what string, do func(n *World) error) {
		all = append(all, w.event(told("%s %s", c.name, what), do))
	}
	if c.lease != 0 && !c.ended && !w.etcd.Lives(c.lease) {
		add("found out that its session had ended", func(n *World) error { return n.lose(i) })
	}
	if c.att != nil && c.act.Do == protocol.DoWait {
		all = w.waitEvents(all, i)
	}
	if t := c.term; t != nil && t.end != nil && t.did.Kind == protocol.EndPause {
		if c.ended {
			add("had no more time to end its claim", func(n *World) error { return n.endStep(i, protocol.EndEvent{Kind: protocol.EndTimeUp}) })
		} else {
			add("tried again to end its claim", func(n *World) error { return n.endStep(i, protocol.EndEvent{Kind: protocol.EndResumes}) })
		}
	}
	if w.hasGhosts(i) {
		add("removed what a restore had brought back", func(n *World) error { return n.removeGhosts(i) })
	}
	if w.verifies(i) {
		add("verified its claim", func(n *World) error { return n.verify(i) })
	}
	if c.term != nil && c.term.end == nil {
		add("began to release its claim", func(n *World) error { return n.release(i) })
	}
	if c.state == closing && c.term != nil && c.term.end == nil && c.term.known != nil {
		add("began to release its claim, without an outcome of the work", func(n *World) error {
			n.change(i).term = &term{held: c.term.held, noticed: c.term.noticed, line: c.term.line}
			return n.release(i)
		})
	}
	waitsInLine := c.att != nil && c.act.Do != protocol.DoPrepare
	if c.parted != nil && !c.taking {
		add("sent its delayed release", func(n *World) error { return n.leavePart(i) })
	}
	if c.state == running && c.term == nil && !waitsInLine && !c.waitsForRecord() && c.mayCall(w.call(i)) {
		add("called for the key", func(n *World) error { return n.goOn(i) })
	}
	if c.mayClose() {
		add("closed", func(n *World) error { return n.close(i) })
	}
	return all
}

// close ends the session of a client that has nothing to do any more.
func (w *World) close(i int) error {
	c := w.change(i)
	lease := c.lease
	c.state = closed
	if c.leave(); w.etcd.Lives(lease) {
		return w.end(lease)
	}
	return nil
}

// verifies reports whether a verification would find something out.
func (w World) verifies(i int) bool {
	c := &w.clients[i]
	if w.scope.Faults[Restore] > 0 && w.etcd.Revision() < c.seen {
		return true
	}
	if c.term == nil || c.term.end != nil {
		return false
	}
	return !w.etcd.Holds(c.term.held.Guard())
}

// waitEvents are what a caller in line hears; see inLine.Await of internal/line.
func (w World) waitEvents(all []event, i int) []event {
	c := &w.clients[i]
	p := c.act.Position
	if !c.deaf {
		if kv := w.outcome(c); kv != nil {
			all = append(all, w.event(told("%s heard that the work is over", c.name), func(n *World) error {
				n.change(i).learnRecord(kv)
				return n.step(i, protocol.Event{Kind: protocol.Woken})
			}))
		}
		if kv := w.notice(c); kv != nil {
			all = append(all, w.event(told("%s read its notice", c.name), func(n *World) error {
				return n.step(i, protocol.Event{Kind: protocol.Noticed, KV: kv})
			}))
		}
		if ev := w.heard(c); ev != nil {
			all = append(all, w.event(told("%s saw that %s had changed", c.name, ev.Kv.Key), func(n *World) error {
				n.change(i).cursor = ev.Kv.ModRevision
				return n.step(i, protocol.Event{Kind: protocol.Heard, KV: ev.Kv, Deleted: ev.Type == mvccpb.Event_DELETE})
			}))
		}
	}
	if p.Pred == nil && p.Behind || w.awaitedChanged(c) {
		all = append(all, w.looksAgain(i))
	}
	return all
}

func (w World) looksAgain(i int) event {
	return w.event(told("%s looked again", w.clients[i].name), func(n *World) error {
		return n.step(i, protocol.Event{Kind: protocol.Woken})
	})
}

// renewalEvents are what a caller in line does at each renewal of its session though it has heard of nothing.
func (w World) renewalEvents(all []event) []event {
	for i := range w.clients {
		c := &w.clients[i]
		if !c.alive() || c.att == nil || c.act.Do != protocol.DoWait {
			continue
		}
		if _, _, rev := awaited(c); rev < 0 && w.etcd.Revision() <= c.act.Position.Rev {
			all = append(all, w.looksAgain(i))
		}
	}
	return all
}

// notice is the notice for a caller in line, as it is or as its watch may still report it.
func (w World) notice(c *client) *mvccpb.KeyValue {
	name := c.layout().Notice(c.instance(), c.att.ID)
	events, err := w.etcd.Events(&pb.WatchCreateRequest{Key: []byte(name), StartRevision: c.cursor + 1})
	if err == nil {
		for _, ev := range events {
			if ev.Type == mvccpb.Event_PUT {
				return ev.Kv
			}
		}
	}
	if k := w.etcd.Get(name); k.Modified > 0 {
		return k.KV()
	}
	return nil
}

// awaited is what a caller in line watches: keys from the first on, and before the end, and the revision of
// the first one as it knows it; -1 if any change is of interest. See awaitedKey of internal/line.
func awaited(c *client) (key, end string, rev int64) {
	a, p := c.att, c.act.Position
	switch keys := a.Mode.Keys(); {
	case p.Pred != nil:
		return string(p.Pred.Key), "", p.Pred.ModRevision
	case keys.First != "":
		return a.Own(a.Mode.Keys().User), keys.End, -1
	case p.Readers:
		return string(p.Own.Key), a.SharersEnd(userKey), -1
	case p.Own != nil:
		return string(p.Own.Key), "", p.Own.ModRevision
	}
	return a.Own(userKey), "", 0
}

func (w World) awaitedChanged(c *client) bool {
	key, _, rev := awaited(c)
	if rev < 0 {
		return w.etcd.Revision() > c.act.Position.Rev // otherwise it looks at a renewal
	}
	return w.etcd.Get(key).Modified != rev
}

// heard is the next event of what a caller in line watches.
func (w World) heard(c *client) *mvccpb.Event {
	key, end, _ := awaited(c)
	events, err := w.etcd.Events(&pb.WatchCreateRequest{Key: []byte(key), RangeEnd: []byte(end), StartRevision: c.cursor + 1})
	if err != nil || len(events) == 0 {
		return nil
	}
	return events[0]
}

// operatorEvents are what operators do.
func (w World) operatorEvents(all []event) []event {
	if w.may(Deletion) {
		for _, k := range w.etcd.Under(prefix) {
			if strings.HasPrefix(k.Name, layout.Void("")) {
				continue // then what it stops may arrive, and holds the key until the session ends
			}
			all = w.fault(all, Deletion, told("an operator deleted %s", k.Name), func(n *World) error {
				n.tampered, n.restored = true, n.restored || k.Name == layout.Epoch()
				return n.do(txn.Delete([]byte(k.Name)))
			})
		}
	}
	if w.may(Force) {
		for _, k := range w.etcd.Under(layout.Own("")) {
			own := k.KV()
			step := protocol.Force{Layout: layout, Key: strings.TrimPrefix(k.Name, layout.Own("")), Own: own}
			all = w.fault(all, Force, told("an operator released %s by force", k.Name), func(n *World) error {
				n.tampered = true
				_, _, bad := n.transact(step.Silently().In)
				return bad
			})
		}
	}
	all = w.puts(w.resizes(all))
	all = w.fault(all, EpochRaise, told("an operator raised the epoch"), func(n *World) error {
		n.tampered, n.restored = true, false
		before, _ := strconv.Atoi(n.etcd.Get(layout.Epoch()).Value)
		return n.do(txn.Put([]byte(layout.Epoch()), fmt.Sprint(before+1), int64(0)))
	})
	if w.may(Restore) && w.saved == nil {
		return append(all, w.event(told("a snapshot was taken"), func(n *World) error {
			n.saved = &w.etcd
			return nil
		}))
	}
	return w.fault(all, Restore, told("etcd was restored from the snapshot"), func(n *World) error {
		n.etcd, n.saved, n.restored, n.rewound, n.tampered = *n.saved, nil, true, true, true
		return nil
	})
}

// do carries out an operation of an operator.
func (w *World) do(op *pb.RequestOp) error {
	_, err, bad := w.transact(&pb.TxnRequest{Success: []*pb.RequestOp{op}})
	if err != nil {
		return err
	}
	return bad
}
