package partitions

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/etcdclaims/claims/internal/explore/driver"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

var errMoved = errors.New("the partition moves to another member")

// run is what a member does for one partition: see run of group. The zero value does nothing. What it points to
// never changes.
type run struct {
	att     *protocol.Acquisition // while the member waits for the partition
	do      protocol.Do
	pos     protocol.Position // in line
	held    *protocol.Held    // while it owns the partition
	noticed bool
	line    protocol.Line
	end     *protocol.Ending // while it gives the partition up
	did     protocol.EndActionKind
	sent    *request // that it waits for the answer to, or nil

	code *code
}

func (r *run) encode() {
	if r.code != nil {
		return
	}
	c := &code{Code: make([]byte, 0, 256), partition: -1}
	if c.Bool(r.att != nil); r.att != nil {
		c.Code = append(c.Code, byte(r.do))
		c.value(reflect.ValueOf(r.att).Elem())
		if r.do == protocol.DoWait {
			c.value(reflect.ValueOf(r.pos))
		}
	}
	if c.Bool(r.held != nil); r.held != nil {
		c.Bool(r.noticed)
		c.value(reflect.ValueOf(r.held).Elem())
		c.value(reflect.ValueOf(r.line))
	}
	if c.Bool(r.end != nil); r.end != nil {
		c.Code = append(c.Code, byte(r.did))
		c.value(reflect.ValueOf(r.end).Elem())
	}
	if c.Bool(r.sent != nil); r.sent != nil {
		c.add(&r.sent.code)
	}
	r.code = c
}

// request makes a request of a member; see txn.Batcher, which sends it by itself.
func (w *World) request(i, p int, step string, r txn.Request) *request {
	in := wire.Message(r)
	if wrong := w.scope.Wrong.Request; wrong != nil {
		in = wrong(step, in)
	}
	s := &request{member: i, step: step, in: in}
	s.Text(step)
	s.partition = int64(p)
	s.value(reflect.ValueOf(in))
	return s
}

// answered is a request with its answer. Its revision matters if the request has changed something.
func (r *request) answered(resp *pb.TxnResponse, err error, changed bool) *request {
	a := &request{member: r.member, step: r.step, resp: resp, err: err, code: code{partition: r.partition}}
	a.Text(r.step)
	a.Bool(err != nil)
	if changed {
		a.Int(resp.Header.Revision)
	}
	a.value(reflect.ValueOf(resp))
	return a
}

// forsake lets a request go on its way alone, if it has not arrived.
func (w *World) forsake(r *request) {
	if r != nil && !r.isAnswered() {
		w.strays = append(slices.Clip(w.strays), r)
	}
}

// begin begins to wait for a partition; see Member.start of group, and acquire.Loop.
func (w *World) begin(i, p int) error {
	lease, err := w.session(i)
	if err != nil {
		return err
	}
	m, r := w.change(i), w.changeRun(i, p)
	w.tries++
	id := fmt.Sprint(m.name, attempts+int64(p)*ofPartition+w.tries)
	epoch := &txn.Epoch{}
	a := &protocol.Acquisition{Try: protocol.Try{
		Layout: m.layout(), Mode: protocol.Exclusive{Layout: m.layout(), Key: key(p)}.For(id, 0),
		ID: id, Ticket: id, Lease: lease, Epoch: epoch,
	}}
	describe(m, a)
	a.PlaceValue = a.Value
	*r = run{att: a}
	return w.step(i, p, protocol.Event{Kind: protocol.BeginJoin})
}

// describe makes the value of an attempt's claim; see acquire.Attempt.Describe.
func describe(m *member, a *protocol.Acquisition) {
	a.Value = protocol.Holder{Claim: a.ID, Owner: m.name, Instance: m.instance()}.Encode()
}

// step reports an event to an attempt, and does what follows; see acquire.Attempt.Drive.
func (w *World) step(i, p int, ev protocol.Event) error {
	m, r := w.change(i), w.changeRun(i, p)
	a := *r.att
	r.att = &a
	act := a.Step(ev)
	for pauses := 0; ; {
		switch act.Do {
		case protocol.DoStay:
			return nil
		case protocol.DoSend, protocol.DoQuery:
			r.do, r.sent = act.Do, w.request(i, p, driver.StepNames[a.Phase()], act.Request)
			return nil
		case protocol.DoLearn:
			act = a.Step(protocol.Event{Kind: protocol.Learnt, Epoch: &txn.Epoch{}})
		case protocol.DoPrepare:
			describe(m, &a)
			act = a.Step(protocol.Event{Kind: protocol.Prepared})
		case protocol.DoPause, protocol.DoWait:
			ev := protocol.Event{Kind: protocol.Resumed}
			switch {
			case m.isOver(a.Lease):
				ev = driver.SessionEnded
			case act.Do == protocol.DoWait:
				r.do, r.pos = act.Do, act.Position
				return nil
			}
			if pauses++; pauses > 100 {
				return fmt.Errorf("%s pauses for ever while it waits for partition %d", m.name, p)
			}
			act = a.Step(ev)
		case protocol.DoEnd:
			return w.concluded(i, p, act)
		}
	}
}

// concluded ends an attempt; see line.conclude and acquire.Grant.
func (w *World) concluded(i, p int, act protocol.Action) error {
	m, r := w.change(i), w.changeRun(i, p)
	a := r.att
	*r = run{}
	over := m.isOver(a.Lease)
	if act.Undo && !over { // else the end of the lease does it
		now := *a
		if err := w.chore(i, chore{kind: "Undo", claim: a.ID}, now.Undoing(nil).Build()); err != nil {
			return err
		}
	}
	switch act.End {
	case protocol.AnswerWon:
		if over {
			break
		}
		return w.own(i, p, a, act.Rev)
	case protocol.AnswerStopped:
		return nil
	case protocol.AnswerUnsettled, protocol.AnswerAgain, protocol.AnswerLater, protocol.AnswerLostPlace:
		if errors.Is(act.Err, errMoved) {
			return nil
		}
	default:
		return fmt.Errorf("%s's wait for partition %d ended with %d: %w", m.name, p, act.End, act.Err)
	}
	return w.begin(i, p)
}

// own gives a member the partition that its attempt has won; see acquire.Grant.
func (w *World) own(i, p int, a *protocol.Acquisition, rev int64) error {
	m, r := w.change(i), w.changeRun(i, p)
	if wrong := w.scope.Wrong.Rev; wrong != nil {
		rev = wrong(rev)
	}
	held := protocol.NewHeld(&a.Try, a.Epoch.Fence(rev))
	r.held, r.noticed, r.line = &held, a.Noticed, a.Line
	// The fence is etcd's revision, which rises with each owner. A claim that has ended meanwhile may be an older one.
	if now := w.etcd.Get(layout.Own(key(p))); now.Value == a.Value && now.Modified != held.Fence {
		return fmt.Errorf("%s has the fence %d for partition %d, and etcd %d", m.name, held.Fence, p, now.Modified)
	}
	if w.holds(&held) {
		w.guards = append(slices.Clip(w.guards), held)
	}
	return nil
}

// stop has a member wait no longer for a partition.
func (w *World) stop(i, p int) error {
	r := w.changeRun(i, p)
	w.forsake(r.sent)
	r.sent = nil
	return w.step(i, p, protocol.Event{Kind: protocol.TimeUp, Err: errMoved})
}

// giveUp has a member give a partition up, whose handler has returned; see claim.Run and term.Term.drop.
func (w *World) giveUp(i, p int) error {
	r := w.changeRun(i, p)
	r.end = &protocol.Ending{Release: protocol.Release{Held: r.held, Noticed: r.noticed, Alone: true}, Line: r.line}
	return w.endStep(i, p, protocol.EndEvent{Kind: protocol.EndBegins})
}

// endStep reports an event to the end of a claim, and does what follows; see exit.run of internal/term.
func (w *World) endStep(i, p int, ev protocol.EndEvent) error {
	m, r := w.change(i), w.changeRun(i, p)
	end := *r.end
	r.end = &end
	for pauses := 0; ; {
		act := end.Step(ev)
		switch r.did = act.Kind; act.Kind {
		case protocol.EndSend, protocol.EndRead:
			r.sent = w.request(i, p, driver.EndName(&end, act), act.Request)
			return nil
		case protocol.EndPause:
			if ev.Kind = protocol.EndResumes; m.ended {
				ev.Kind = protocol.EndTimeUp
			}
			if pauses++; pauses > 100 {
				return fmt.Errorf("%s pauses for ever while it gives partition %d up", m.name, p)
			}
			continue
		case protocol.EndReleased:
			*r = run{}
			return w.clearAway(i, &end, act)
		case protocol.EndUnsettled:
			*r = run{}
			return w.rest(i, chore{claim: end.ID, rest: &end}, protocol.EndEvent{Kind: protocol.EndResumes})
		}
		*r = run{} // it was lost
		return nil
	}
}

// clearAway removes what a released claim has left; see exit.clear of internal/term.
func (w *World) clearAway(i int, end *protocol.Ending, act protocol.EndAction) error {
	if request, some := end.ClearAway(0); act.Away && some {
		return w.chore(i, chore{kind: "ClearAway", claim: end.ID}, request)
	}
	return nil
}

// chore is a cleanup, which is tried until it is done or its session has ended; see lease.Cleanup. It never changes.
type chore struct {
	kind, claim string
	rest        *protocol.Ending // of a claim that is given up in the background, or nil
	again       txn.Request
	sent        *request
	code
}

// chore begins one.
func (w *World) chore(i int, c chore, r txn.Request) error {
	m := w.change(i)
	if m.ended {
		return nil // the end of the lease does it
	}
	c.code = code{}
	c.Text(c.claim) // it names the partition
	c.again, c.sent = r, w.request(i, int(c.partition), c.kind, r)
	c.encode()
	m.chores = append(slices.Clip(m.chores), c)
	return nil
}

func (c *chore) encode() {
	c.code = code{}
	c.Text(c.kind + c.claim)
	if c.rest != nil {
		c.value(reflect.ValueOf(c.rest).Elem())
	}
	c.add(&c.sent.code)
}

// rest has the end of a claim go on; see exit.goOn of internal/term.
func (w *World) rest(i int, c chore, ev protocol.EndEvent) error {
	end := *c.rest
	c.rest = &end
	act := driver.GoOn(&end, ev)
	if act.Kind == protocol.EndSend {
		c.kind = driver.EndName(&end, act)
		return w.chore(i, c, act.Request)
	}
	return w.clearAway(i, &end, act)
}
