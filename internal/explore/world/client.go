package world

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"github.com/etcdclaims/claims/internal/explore/driver"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/record"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// state is how far a client has come.
type state int8

const (
	running state = iota
	closing       // it makes no more calls
	closed
	dead   // its process has died
	failed // it has seen etcd's revision go back, and claims nothing any more
)

// client is a process. Its fields are values, or are never changed once they are set.
type client struct {
	name  string // a letter
	state state
	calls int8 // that have an answer
	lives int8 // processes so far

	lease   int64 // of the session; 0 without a session
	ended   bool  // the session has ended, as far as the client knows
	expired bool  // etcd has ended the lease after its deadline
	deaf    bool
	seen    int64 // the greatest revision of a reply
	epoch   *txn.Epoch

	att    *protocol.Acquisition // the attempt of the call under way
	act    *protocol.Action      // that it waits for
	cursor int64                 // revision of what it knows while it waits
	mode   protocol.Mode         // what the call has learnt of the key
	gaveUp bool                  // its caller waits no longer
	known  *record.Known         // what the call knows of its record, or nil
	undone string                // the attempt whose undo it waits for, or ""
	buries bool                  // it marks an orphan as dead
	burial txn.Request           // by this
	over   bool                  // the call has its answer: it does not begin its work again
	term   *term                 // the claim that it has, or is giving up
	chores []chore
	parted *protocol.Ending // of a claim whose key is yet to be deleted, or nil; see term.parting
	taking bool             // the attempt is to take that key over

	bytes []byte // of all that, nil after a change
}

func (c *client) instance() string { return fmt.Sprint(c.name, "p", c.lives) }

func (c *client) layout() protocol.Layout {
	return protocol.Layout{Prefix: prefix, Instance: c.instance()}
}

func (c *client) alive() bool { return c.state != dead && c.state != closed && c.state != failed }

// mayClose reports whether the client has nothing left to do.
func (c *client) mayClose() bool {
	return c.state == closing && c.att == nil && c.term == nil && len(c.chores) == 0 && c.parted == nil
}

// nextLease returns the id of another lease: the first that nothing mentions any more, since no event can tell it from
// one that there never was. As a number it begins with the letter of the client.
func (w World) nextLease(c *client) int64 {
	id := int64(c.name[0])<<7 + 1
	for ; w.etcd.Lives(id) || w.mentions(appendInt(nil, id)); id++ {
	}
	return id
}

// newID returns the id of another attempt, likewise.
func (w World) newID(c *client) string {
	for n := 1; ; n++ {
		if id := fmt.Sprint(c.name, n); !w.mentions([]byte(id)) {
			return id
		}
	}
}

// mentions reports whether there is a text, or a number, anywhere.
func (w World) mentions(what []byte) bool {
	for i := range w.net {
		if bytes.Contains(w.net[i].bytes, what) {
			return true
		}
	}
	for i := range w.clients {
		c := w.clients[i] // a copy: its bytes are made if it is changing
		if c.encode(); bytes.Contains(c.bytes, what) {
			return true
		}
	}
	for i := range w.guards {
		if bytes.Contains(appendValue(nil, reflect.ValueOf(&w.guards[i])), what) {
			return true
		}
	}
	for _, k := range w.etcd.Under("/") {
		if strings.Contains(k.Name, string(what)) || strings.Contains(k.Value, string(what)) {
			return true
		}
	}
	return w.saved != nil && bytes.Contains(bytes.Join(partsOf(*w.saved), nil), what)
}

// encode makes the bytes of the client, unless they are there.
func (c *client) encode() {
	if c.bytes != nil {
		return
	}
	b := append(append(make([]byte, 0, 1024), c.name...), byte(c.state), byte(c.calls), byte(c.lives),
		flag(c.ended)|flag(c.expired)<<1|flag(c.deaf)<<2|flag(c.gaveUp)<<3)
	b = appendInt(appendInt(appendInt(b, c.lease), c.seen), c.cursor)
	b = appendValue(b, reflect.ValueOf(c.epoch))
	if c.mode != nil {
		b = appendValue(b, reflect.ValueOf(c.mode))
	}
	if b = append(b, flag(c.buries)|flag(c.over)<<1|flag(c.known != nil)<<2); c.known != nil {
		b = append(appendInt(b, c.known.Rev), c.undone...)
		b = appendValue(b, reflect.ValueOf(c.known.KV))
	}
	if b = append(b, flag(c.att != nil)); c.att != nil {
		b = appendAttempt(append(b, byte(c.act.Do)), c.att)
		if c.act.Do == protocol.DoWait {
			b = appendValue(b, reflect.ValueOf(&c.act.Position))
		}
	}
	if b = append(b, flag(c.term != nil)); c.term != nil {
		b = c.term.append(b)
	}
	for i := range c.chores {
		b = c.chores[i].append(b)
	}
	if b = append(b, flag(c.parted != nil)|flag(c.taking)<<1); c.parted != nil {
		b = appendValue(b, reflect.ValueOf(c.parted))
	}
	c.bytes = b
}

// change returns a client that is about to change.
func (w *World) change(i int) *client {
	c := &w.clients[i]
	c.bytes = nil
	return c
}

// call returns the call that is under way, or comes next.
func (w World) call(i int) Call {
	return w.scope.Callers[i].Calls[w.clients[i].calls]
}

// begin makes the next attempt of a call, in a session that has not ended; see acquire.Loop.
func (w *World) begin(i int) error {
	switch may, err := w.admit(i); {
	case err != nil || may == waits:
		return err
	case may == ends:
		return w.ended(i)
	}
	c, call := w.change(i), w.call(i)
	if c.lease == 0 || c.ended {
		c.lease, c.ended, c.expired = w.nextLease(c), false, false
		if err := w.grantLease(c.lease); err != nil {
			return err
		}
	}
	id := w.newID(c)
	if c.mode == nil {
		c.mode = call.Mode.mode(c.layout())
	}
	a := &protocol.Acquisition{Try: protocol.Try{
		Layout: c.layout(), Mode: c.mode.For(id, c.epoch.Value), ID: id, Ticket: id, Lease: c.lease, Epoch: bare(c.epoch),
	}}
	if call.Noted {
		a.Ask.Note = "n"
	}
	if call.Meets {
		a.Ask.If, a.Ask.Concern = []*pb.Compare{txn.CreatedAt([]byte(absent), 0)}, []string{absent}
	}
	describe(c, a)
	putBeside(c, call, a)
	if a.PlaceValue = a.Value; call.Meets || a.Beside != nil { // as line.selfServing
		a.PlaceValue = protocol.Holder{Claim: id, Owner: c.name, Instance: c.instance(), Kind: protocol.KindSelf}.Encode()
	}
	if p := c.parted; p != nil { // see Acquirer.succeed of internal/acquire
		c.taking = true
		a.Succeed(p.Held)
	}
	c.att, c.cursor = a, w.etcd.Revision()
	kind := protocol.BeginTake
	if call.Waits {
		kind = protocol.BeginJoin
	}
	return w.step(i, protocol.Event{Kind: kind})
}

// describe makes the value of an attempt's claim; see acquire.Attempt.Describe.
func describe(c *client, a *protocol.Acquisition) {
	a.Value = protocol.Holder{Claim: a.ID, Owner: c.name, Instance: c.instance(), Epoch: a.Epoch.Value}.Encode()
}

// bare is an epoch without the revision at which it was read, which concerns no attempt.
func bare(e *txn.Epoch) *txn.Epoch { return &txn.Epoch{Value: e.Value, Rev: e.Rev} }

// step reports an event to the attempt of a client, and does what follows.
func (w *World) step(i int, ev protocol.Event) error {
	c := w.change(i)
	a := *c.att
	c.att = &a
	return w.carryOut(i, a.Step(ev))
}

// carryOut does what an attempt wants to be done; see acquire.Attempt.Drive. What needs no answer from etcd
// is done at once.
func (w *World) carryOut(i int, act protocol.Action) error {
	c := w.change(i)
	for {
		if act.News {
			c.learnRecord(act.Beside)
		}
		switch act.Do {
		case protocol.DoStay:
			return nil
		case protocol.DoSend, protocol.DoQuery:
			c.act = &act
			return w.send(i, ofCall, driver.StepNames[c.att.Phase()], act.Request)
		case protocol.DoLearn:
			ev := protocol.Event{Kind: protocol.Learnt}
			if err := c.learn(act.EpochKey, act.Rev); err != nil {
				ev = protocol.Event{Kind: protocol.Failed, Err: err}
			}
			ev.Epoch = bare(c.epoch)
			act = c.att.Step(ev)
		case protocol.DoPrepare:
			may, err := w.admit(i)
			switch {
			case err != nil:
				return err
			case may == ends:
				c.over = true
				act = c.att.Step(protocol.Event{Kind: protocol.Failed})
				continue
			case may == waits:
				act.News, c.act = false, &act
				return nil
			}
			describe(c, c.att)
			putBeside(c, w.call(i), c.att)
			act = c.att.Step(protocol.Event{Kind: protocol.Prepared})
		case protocol.DoPause:
			if act = c.att.Step(w.pausing(i)); act.Do == protocol.DoPause {
				return fmt.Errorf("client %s pauses for ever", c.name)
			}
		case protocol.DoWait:
			if c.act, c.cursor = &act, act.Position.Rev; !c.ended {
				return nil
			}
			act = c.att.Step(driver.SessionEnded)
		case protocol.DoEnd:
			return w.concluded(i, act)
		}
	}
}

// pausing is the event that ends a pause.
func (w *World) pausing(i int) protocol.Event {
	if w.clients[i].ended {
		return driver.SessionEnded
	}
	return protocol.Event{Kind: protocol.Resumed}
}

// learn takes over the epoch as it was read at a revision; see store.LearnEpoch.
func (c *client) learn(kvs []*mvccpb.KeyValue, asOf int64) error {
	e, err := txn.ReadEpoch(kvs, asOf)
	if err != nil {
		return err
	}
	switch {
	case asOf < c.epoch.AsOf || e.Is(c.epoch):
	case e.Value < c.epoch.Value:
		return errEpoch
	case c.seen == 0: // without restores, when it was read tells no more than when it was raised
		c.epoch = &txn.Epoch{Value: e.Value, Rev: e.Rev, AsOf: e.Rev}
	default:
		c.epoch = e
	}
	return nil
}

// concluded ends an attempt; see acquire.Conclude and line.conclude.
func (w *World) concluded(i int, act protocol.Action) error {
	c := w.change(i)
	a := c.att
	if act.Undo {
		if err := w.undo(i, a); err != nil {
			return err
		}
	}
	slots := w.refusesSlots(c)
	c.att, c.act, c.cursor = nil, nil, 0
	if act.End != protocol.AnswerWon {
		c.mode = a.Mode
	}
	if c.taking {
		if held, err := w.tookOver(i, act.End); held || err != nil {
			return err
		}
	}
	again := false
	switch act.End {
	case protocol.AnswerWon:
		return w.grant(i, a, act.Rev)
	case protocol.AnswerAgain, protocol.AnswerLater, protocol.AnswerLostPlace:
		again = true
	case protocol.AnswerUnsettled:
		if again = w.call(i).Waits; again && a.Beside != nil && c.state == running && !c.gaveUp { // see line.Line.waitOn
			c.undone = a.ID
			return nil
		}
	case protocol.AnswerFailed:
		if !w.restored && !slots && !c.over {
			return fmt.Errorf("the call of client %s failed, although nothing was refused: %w", c.name, act.Err)
		}
	case protocol.AnswerUnmet:
		if w.etcd.Get(absent).Modified == 0 {
			return fmt.Errorf("client %s was told that its condition does not hold", c.name)
		}
	case protocol.AnswerHeld, protocol.AnswerBehind:
		c.over = true
	case protocol.NotEnded, protocol.AnswerStopped:
	}
	if again && c.state == running && !c.gaveUp {
		return w.begin(i)
	}
	w.answered(i)
	return nil
}

// answered ends a call.
func (w *World) answered(i int) {
	c := w.change(i)
	over := c.over || w.call(i).Work != Completes || c.state != running
	c.mode, c.gaveUp, c.known, c.undone, c.over = nil, false, nil, "", false
	if !over { // its caller calls again, until the work is known to be over
		return
	}
	c.calls++
	if int(c.calls) == len(w.scope.Callers[i].Calls) && c.state == running {
		c.state = closing
	}
}

// lose ends the session of a client, and with it all that is on its lease; see lease.Session.Die.
func (w *World) lose(i int) error {
	c := w.change(i)
	if c.ended {
		return nil
	}
	c.ended, c.parted, c.taking = true, nil, false
	w.forsake(i, ofTerm)
	var kept []chore
	for _, chore := range c.chores {
		if chore.besides != nil { // outlives the session
			kept = append(kept, chore)
		} else {
			w.forsake(i, chore.id)
		}
	}
	c.chores = kept
	if c.term != nil {
		c.term = nil
		w.answered(i)
	}
	if c.att != nil && c.act.Do == protocol.DoWait {
		return w.step(i, driver.SessionEnded)
	}
	return nil
}
