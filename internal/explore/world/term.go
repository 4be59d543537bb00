package world

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/etcdclaims/claims/internal/explore/driver"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/record"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// term is a claim that a client has. It never changes.
type term struct {
	held    protocol.Held
	noticed bool
	line    protocol.Line
	known   *record.Known      // what the attempt knew of the record, or nil
	end     *protocol.Ending   // once its holder gives it up
	did     protocol.EndAction // that the ending waits for
}

func (t *term) append(b []byte) []byte {
	b = appendValue(append(b, flag(t.noticed), flag(t.end != nil)), reflect.ValueOf(&t.held))
	b = appendValue(b, reflect.ValueOf(&t.line))
	if t.known != nil {
		b = appendValue(appendInt(b, t.known.Rev), reflect.ValueOf(t.known.KV))
	}
	if t.end != nil {
		b = appendValue(append(b, byte(t.did.Kind)), reflect.ValueOf(t.end))
	}
	return b
}

// grant gives a client the claim that its attempt has; see acquire.Acquirer.Grant.
func (w *World) grant(i int, a *protocol.Acquisition, rev int64) error {
	c := w.change(i)
	if c.ended {
		err := w.undo(i, a)
		w.answered(i)
		return err
	}
	held := protocol.NewHeld(&a.Try, a.Epoch.Fence(rev))
	if k := w.etcd.Get(layout.Own(held.Key)); k.Modified == rev && claimOf(k.Value) != a.ID && !w.rewound {
		return fmt.Errorf("%s was given the claim of %s", a.ID, claimOf(k.Value))
	}
	c.term = &term{held: held, noticed: a.Noticed, line: a.Line, known: c.known}
	if c.known != nil {
		w.got(a.ID)
	}
	if w.etcd.Holds(held.Has()) || w.scope.Faults[Restore] > 0 {
		w.guards = append(w.guards[:len(w.guards):len(w.guards)], held)
	}
	if w.call(i).Writes {
		fence := held.Token().Fence
		write := protocol.Commit{Held: &held, Then: []*pb.RequestOp{
			txn.Put([]byte(resource), fmt.Sprint(fence), int64(0)), txn.Put([]byte(done+held.ID), held.ID, int64(0)),
		}}
		return w.send(i, stray, "Commit", write.Build())
	}
	return nil
}

// leaving is the step that gives the claim up; see term.Term.leaving.
func (t *term) leaving(call Call) protocol.Release {
	return protocol.Release{Held: &t.held, Noted: call.Noted, Noticed: t.noticed, Alone: true}
}

// release has a client give its claim up; see term.Term.drop.
func (w *World) release(i int) error {
	c, call := w.change(i), w.call(i)
	if call.Parts && !c.term.noticed && !c.term.line.More && len(c.term.line.Next) == 0 {
		return w.part(i)
	}
	t := *c.term
	t.end = &protocol.Ending{Release: t.leaving(call), Line: t.line, Frees: call.Frees}
	if call.Ops {
		key := done + t.held.ID
		t.end.Ops = &protocol.EndOps{
			Ops:     []*pb.RequestOp{txn.Put([]byte(proof), "", int64(0)), txn.Put([]byte(key), t.held.ID, int64(0))},
			Concern: []string{proof, key},
		}
	}
	if t.known != nil {
		t.end.Ops, t.end.Frees = endOps(c, call, &t, call.Work), true
	}
	c.term = &t
	return w.endStep(i, protocol.EndEvent{Kind: protocol.EndBegins})
}

// endStep reports an event to the ending of a claim, and does what follows; see exit.run of internal/term.
func (w *World) endStep(i int, ev protocol.EndEvent) error {
	c := w.change(i)
	t := *c.term
	end := *t.end
	t.end, c.term = &end, &t
	for t.did = end.Step(ev); ; t.did = end.Step(ev) {
		switch t.did.Kind {
		case protocol.EndSend, protocol.EndRead:
			return w.send(i, ofTerm, driver.EndName(&end, t.did), t.did.Request)
		case protocol.EndPause:
			return nil
		case protocol.EndAsk:
			if ev.Kind = protocol.EndSessionLives; !w.etcd.Lives(c.lease) {
				ev.Kind, c.ended = protocol.EndSessionGone, true
			}
			continue
		}
		return w.endedTerm(i, &end, t.did)
	}
}

// endedTerm ends a claim as the action says; see exit.end of internal/term.
func (w *World) endedTerm(i int, end *protocol.Ending, a protocol.EndAction) error {
	c := w.change(i)
	held, known := end.Held, c.term.known
	c.term = nil
	c.over = known != nil && a.Kind == protocol.EndReleased
	was := w.etcd.Get(done+held.ID).Modified > 0
	switch {
	case end.Ops == nil || w.scope.Faults[Restore] > 0:
	case a.Kind == protocol.EndReleased && !was:
		return fmt.Errorf("client %s was told that its operation was carried out", c.name)
	case (a.Kind == protocol.EndLost && !a.Unsure || a.Kind == protocol.EndStays) && was && !w.followed(held.ID):
		return fmt.Errorf("client %s was told that its operation was not carried out", c.name)
	}
	switch a.Kind {
	case protocol.EndReleased:
		if err := w.clear(i, end, a); err != nil {
			return err
		}
	case protocol.EndLost:
		copied := w.scope.Faults[Twice] > 0 && w.most < w.scope.most() // the first copy of its request may have ended it
		if a.State != protocol.Kept && !a.Unsure && !copied && !w.tampered && w.etcd.Lives(held.Lease) {
			return fmt.Errorf("client %s was told that its claim is lost, although nobody took it away", c.name)
		}
		if err := w.found(i, end.Release, a.State); err != nil {
			return err
		}
	case protocol.EndStays: // the holder releases it then
		c.term = &term{held: *held, noticed: end.Noticed, line: end.Line, known: known}
		return w.releaseOnly(i)
	case protocol.EndUnsettled:
		if err := w.rest(i, end); err != nil {
			return err
		}
	case protocol.EndGiven, protocol.EndSend, protocol.EndRead, protocol.EndPause, protocol.EndAsk:
	}
	w.answered(i)
	return nil
}

// releaseOnly gives a claim up whose end with an operation came to nothing.
func (w *World) releaseOnly(i int) error {
	c, call := w.change(i), w.call(i)
	t := *c.term
	t.end = &protocol.Ending{Release: t.leaving(call), Line: t.line}
	c.term = &t
	if t.known != nil { // see term.Term.LeaveFor
		t.end.Ops, t.end.Frees = endOps(c, call, &t, GivesBack), true
		return w.endStep(i, protocol.EndEvent{Kind: protocol.EndLeft})
	}
	return w.endStep(i, protocol.EndEvent{Kind: protocol.EndBegins})
}

// clear removes what a released claim has left; see exit.clear of internal/term.
func (w *World) clear(i int, end *protocol.Ending, a protocol.EndAction) error {
	if a.Away {
		if err := w.clearAway(i, end.Release); err != nil {
			return err
		}
	}
	if !a.Emptied || !a.Remains {
		return nil
	}
	guard := end.Mode.Guard(end.Fence)
	record := &mvccpb.KeyValue{Key: guard.Name, ModRevision: guard.Rev}
	step := protocol.Clear{Layout: end.Layout, Key: userKey, Record: record}
	return w.chore(i, chore{kind: "Clear", request: step.Build()})
}

// clearAway removes the notice and the note of a claim that another request has ended; see term.Term.clearAway.
func (w *World) clearAway(i int, r protocol.Release) error {
	request, some := r.ClearAway(0)
	if !some {
		return nil
	}
	return w.chore(i, chore{kind: "ClearAway", claim: r.ID, request: request})
}

// verify finds out what has become of the claim of a client, and of the epoch; see term.Terms.Verify. It does not
// change etcd.
func (w *World) verify(i int) error {
	c := w.change(i)
	if w.scope.Faults[Restore] > 0 {
		if w.etcd.Revision() < c.seen {
			return w.fail(i)
		}
		c.seen = w.etcd.Revision()
	}
	step := protocol.Verify{Layout: c.layout()}
	t := c.term
	if t != nil && t.end == nil {
		step.Held = []*protocol.Held{&t.held}
	}
	_, resp, err := w.etcd.Txn(step.Build())
	if err != nil {
		return err
	}
	epoch := step.Epoch(resp)
	if err := c.learn(epoch, resp.Header.Revision); err != nil {
		return w.fail(i)
	}
	if step.Held == nil {
		return nil
	}
	found := protocol.Kept
	if !resp.Succeeded {
		_, resp, err = w.etcd.Txn(step.Reads().In)
		if err != nil {
			return err
		}
		states, _ := step.Judge(resp)
		found = states[0]
	}
	if found == protocol.Kept {
		found = t.held.OfEpoch(epoch)
	}
	if found == protocol.Kept {
		return nil
	}
	if !w.tampered && w.etcd.Lives(t.held.Lease) {
		return fmt.Errorf("client %s has lost its claim, although nobody took it away", c.name)
	}
	release := t.leaving(w.call(i))
	c.term = nil
	w.answered(i)
	return w.found(i, release, found)
}

// found ends a claim that was found to be lost; see term.Term.Found.
func (w *World) found(i int, r protocol.Release, s protocol.State) error {
	c := w.change(i)
	record := s == protocol.RecordDeleted || s == protocol.RecordReplaced
	var err error
	switch {
	case s == protocol.Kept:
		return nil
	case s == protocol.EpochRaised, record && !r.Mode.Guard(r.Fence).Unchanged:
		err = w.zombie(i, r.Held)
	case record:
		end := &protocol.Ending{Release: r}
		end.Step(protocol.EndEvent{Kind: protocol.EndLeft})
		err = w.rest(i, end)
	}
	if err != nil || c.state == failed {
		return err
	}
	return w.clearAway(i, r)
}

// zombie moves a claim to a lease that nobody renews; see term.Term.Zombie.
func (w *World) zombie(i int, h *protocol.Held) error {
	c := w.change(i)
	held := *h
	value := protocol.Holder{
		Claim: h.ID, Owner: c.name, Instance: c.instance(), Kind: protocol.KindZombie, Epoch: keyspace.Epoch(held.Fence),
	}.Encode()
	m := &protocol.Move{Held: &held, To: value, Lease: w.nextLease(c)}
	if err := w.grantLease(m.Lease); err != nil {
		return err
	}
	return w.chore(i, chore{kind: "Move", claim: h.ID, move: m, request: m.Build()})
}

// hasGhosts reports whether a restore has brought back a key on the lease of a client that the client does not know of.
func (w World) hasGhosts(i int) bool {
	c := &w.clients[i]
	return w.rewound && c.lease != 0 && !c.ended && len(w.ghosts(c)) > 0
}

// ghosts are those keys.
func (w World) ghosts(c *client) (ops []*pb.RequestOp) {
	for _, under := range []string{layout.Own(""), layout.Lines(), c.layout().Notices()} {
		for _, k := range w.etcd.Under(under) {
			claim := claimOf(k.Value)
			if under != layout.Own("") {
				claim = protocol.PlacedID([]byte(k.Name))
			}
			if k.Lease == c.lease && claim != "" && !w.knows(c, claim) {
				ops = append(ops, txn.Delete([]byte(k.Name)))
			}
		}
	}
	return ops
}

// removeGhosts removes them; see term.Terms.RemoveGhosts.
func (w *World) removeGhosts(i int) error {
	_, err, bad := w.transact(&pb.TxnRequest{Success: w.ghosts(&w.clients[i])})
	if err != nil {
		return err
	}
	return bad
}

// part ends a claim whose key is deleted later; see term.Term.part.
func (w *World) part(i int) error {
	c := w.change(i)
	c.parted = &protocol.Ending{Release: c.term.leaving(w.call(i))}
	c.term = nil
	w.answered(i)
	return nil
}

// leavePart has the deletion sent.
func (w *World) leavePart(i int) error {
	c := w.change(i)
	end := c.parted
	c.parted, c.taking = nil, false
	return w.restStep(i, chore{claim: end.ID, rest: end, first: true}, protocol.EndEvent{Kind: protocol.EndBegins})
}

// mayCall reports whether a call may begin: its request takes a key over, or is sent after the answer to the deletion of the
// key. See txn.Batcher.Later.
func (c *client) mayCall(call Call) bool {
	if slices.ContainsFunc(c.chores, func(ch chore) bool { return ch.first }) {
		return false
	}
	return c.parted == nil || !call.Waits && !call.Meets && c.parted.EpochRev == c.epoch.Rev
}

// tookOver ends an attempt that was to take a key over. It reports whether it was refused: then it is made again, after the
// key is deleted.
func (w *World) tookOver(i int, how protocol.Answer) (again bool, err error) {
	c := w.change(i)
	if how == protocol.AnswerWon {
		c.parted, c.taking = nil, false
		return false, nil
	}
	err = w.leavePart(i)
	return how == protocol.AnswerHeld || how == protocol.AnswerBehind || how == protocol.AnswerAgain, err
}
