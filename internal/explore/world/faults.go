package world

import (
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
)

// clientFaults are what can happen to a client.
func (w World) clientFaults(all []event, i int) []event {
	c := &w.clients[i]
	add := func(f Fault, when bool, what string, do func(n *World) error) {
		if when {
			all = w.fault(all, f, told(what, c.name), do)
		}
	}
	add(Restart, c.state == dead, "%s was started again", func(n *World) error { return n.restart(i) })
	if !c.alive() {
		return all
	}
	busy := c.att != nil || c.term != nil || c.parted != nil
	add(Crash, busy || len(c.chores) > 0, "%s died", func(n *World) error { n.die(i, dead); return nil })
	add(Expiry, busy && !c.ended && w.etcd.Lives(c.lease), "the lease of %s ended, after its deadline", func(n *World) error {
		n.change(i).expired = true
		return n.end(c.lease)
	})
	add(Revocation, busy && !c.ended && w.etcd.Lives(c.lease), "the lease of %s was revoked before its deadline", func(n *World) error {
		n.tampered = true
		return n.end(c.lease)
	})
	add(Silence, busy && !c.ended && w.etcd.Lives(c.lease), "the deadline of %s passed, and its lease went on", func(n *World) error {
		return n.lose(i)
	})
	add(GivingUp, c.att != nil || c.waitsForRecord(), "the caller of %s gave up", func(n *World) error {
		n.change(i).gaveUp = true
		return n.abandon(i)
	})
	pauses := c.term != nil && c.term.end != nil && c.term.did.Kind == protocol.EndPause
	add(GivingUp, pauses, "%s had no more time to end its claim", func(n *World) error {
		return n.endStep(i, protocol.EndEvent{Kind: protocol.EndTimeUp})
	})
	add(Closing, c.state == running, "%s was told to close", func(n *World) error { return n.shut(i) })
	add(Deafness, !c.deaf && c.att != nil && c.act.Do == protocol.DoWait, "%s hears of no change any more", func(n *World) error {
		n.change(i).deaf = true
		return nil
	})
	return all
}

// die ends the process of a client.
func (w *World) die(i int, s state) {
	c := w.change(i)
	c.state = s
	w.forsake(i, ofCall)
	w.forsake(i, ofWork)
	c.known, c.undone, c.buries, c.burial, c.over = nil, "", false, txn.Request{}, false
	w.forsake(i, ofTerm)
	for _, chore := range c.chores {
		w.forsake(i, chore.id)
	}
	c.att, c.act, c.cursor, c.mode, c.term, c.chores = nil, nil, 0, nil, nil, nil
	c.parted, c.taking = nil, false
	c.leave()
}

// leave has a process that has ended know nothing any more.
func (c *client) leave() {
	c.lease, c.ended, c.expired, c.deaf, c.seen, c.epoch = 0, false, false, false, 0, &txn.Epoch{}
}

// restart puts another process in the place of a dead one, which makes the same call.
func (w *World) restart(i int) error {
	c := w.change(i)
	c.lives++
	if c.state = running; int(c.calls) == len(w.scope.Callers[i].Calls) {
		c.state = closing
	}
	return nil
}

// shut has a client make no more calls, and give up what it has.
func (w *World) shut(i int) error {
	c := w.change(i)
	c.state = closing
	return w.abandon(i)
}

// abandon ends a call that waits for its claim, or for its record.
func (w *World) abandon(i int) error {
	c := w.change(i)
	w.forsake(i, ofCall)
	w.forsake(i, ofWork)
	c.buries, c.burial = false, txn.Request{}
	switch {
	case c.att != nil:
		return w.step(i, protocol.Event{Kind: protocol.TimeUp, Err: errGivenUp})
	case c.term == nil && c.known != nil:
		w.answered(i)
	}
	return nil
}
