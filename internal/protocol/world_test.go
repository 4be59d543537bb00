package protocol_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// world is a model in which several attempts for one key go on at the same time, in a random order.
type world struct {
	*model
	rng    *rand.Rand
	actors []*actor
	undos  []func()
	puts   map[string]string // by name and revision, all claims that there ever were
	before etcdmodel.State   // the keys as they were
	events []protocol.Event  // what a watch has reported
	story  []string
}

// actor is one of those attempts.
type actor struct {
	*protocol.Acquisition
	act  protocol.Action
	held *protocol.Held
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{model: newModel(t), rng: rand.New(rand.NewPCG(seed, 0)), puts: make(map[string]string)}
	if w.chance(3) {
		w.has("o", []func() protocol.Mode{exclusive, slots, shared}[w.rng.IntN(3)]())
	}
	kinds := [][]func() protocol.Mode{{exclusive}, {slots}, {shared}, {exclusive, shared}, {exclusive, slots}}[w.rng.IntN(5)]
	for _, id := range []string{"a", "b", "c"} {
		a := &actor{Acquisition: &protocol.Acquisition{Try: w.caller(id, kinds[w.rng.IntN(len(kinds))](), w.epoch()).Try}}
		switch w.rng.IntN(6) {
		case 0:
			a.Ask.If = []*pb.Compare{txn.CreatedAt([]byte("/x"), 0)}
		case 1:
			a.Ask.Then, a.Ask.Note = []*pb.RequestOp{txn.Put([]byte("/x"), "x", int64(0))}, "n"
		case 2:
			a.Beside = &protocol.Beside{Key: "/b", Value: id}
		}
		w.actors = append(w.actors, a)
	}
	w.look()
	return w
}

func (w *world) chance(n int) bool { return w.rng.IntN(n) == 0 }

func (w *world) tell(a *actor, what string, args ...any) {
	who := ""
	if a != nil {
		who = a.ID + ": "
	}
	w.story = append(w.story, who+fmt.Sprintf(what, args...))
}

// look notes what has changed, as a watch would report it.
func (w *world) look() {
	for _, k := range w.Under("") {
		if w.before.Get(k.Name).Modified != k.Modified {
			w.puts[fmt.Sprint(k.Name, " ", k.Modified)] = k.Value
			w.events = append(w.events, protocol.Event{Kind: protocol.Heard, KV: w.KV(k.Name)})
		}
	}
	for _, k := range w.before.Under("") {
		if w.Get(k.Name).Modified == 0 {
			w.events = append(w.events, protocol.Event{Kind: protocol.Heard, KV: &mvccpb.KeyValue{Key: []byte(k.Name), ModRevision: w.Revision()}, Deleted: true})
		}
	}
	w.before = w.State
}

// step reports an event to an attempt, and checks what it makes of it.
func (w *world) step(a *actor, ev protocol.Event) {
	w.tb.Helper()
	act := a.Step(ev)
	w.tell(a, "%v %+v -> %v end %v rev %d undo %v, phase %v", ev.Kind, ev.Class, act.Do, act.End, act.Rev, act.Undo, a.Phase())
	if act.Do == protocol.DoStay {
		return
	}
	a.act = act
	if act.Do != protocol.DoEnd {
		return
	}
	if act.Undo {
		w.undos = append(w.undos, func() { w.undo(a) })
	}
	if act.End != protocol.AnswerWon {
		return
	}
	name := a.Own(a.Mode.Keys().Claim)
	if got := w.puts[fmt.Sprint(name, " ", act.Rev)]; act.Rev == 0 || got != a.Value {
		w.tb.Fatalf("%s has won at %d, where etcd had %q under %s, not %q", a.ID, act.Rev, got, name, a.Value)
	}
	held := protocol.NewHeld(&a.Try, a.Epoch.Fence(act.Rev))
	a.held = &held
}

func (w *world) undo(a *actor) {
	var besides []*pb.RequestOp
	if a.Beside != nil {
		besides = []*pb.RequestOp{txn.Nest(&pb.TxnRequest{
			Compare: []*pb.Compare{txn.ValueIs([]byte("/b"), a.Beside.Value)}, Success: []*pb.RequestOp{txn.Delete([]byte("/b"))},
		})}
		if !w.Lives(a.Lease) {
			w.request(txn.Request{In: &pb.TxnRequest{Success: besides}})
		}
	}
	w.drop(a, w.request(a.Undoing(besides).Build()))
}

func (w *world) drop(a *actor, resp *pb.TxnResponse) {
	if resp == nil {
		return
	}
	if r, some := (protocol.Drop{Try: &a.Try, Claims: a.Elsewhere(resp)}).Build(); some {
		w.request(r)
	}
}

// answer carries an attempt's request out, or not, and reports its reply, or none.
func (w *world) answer(a *actor, calm bool) {
	query := a.act.Do == protocol.DoQuery
	failed := func(class protocol.Class) {
		w.step(a, protocol.Event{Kind: protocol.Failed, Class: class, Err: errTest})
	}
	if !calm {
		switch n := w.rng.IntN(24); {
		case n == 0 && query:
			failed([]protocol.Class{protocol.Passing, protocol.Refused}[w.rng.IntN(2)])
			return
		case n == 0:
			possible := []protocol.Class{protocol.Transient, protocol.Refused}
			if a.NamesLeases() {
				possible = append(possible, protocol.LeaseGone)
			}
			if a.Over != nil {
				possible = append(possible, protocol.Barred)
			}
			failed(possible[w.rng.IntN(len(possible))])
			return
		case n == 1 && !query: // etcd answers "no space", whether it has carried it out or not
			if w.chance(2) {
				w.request(a.act.Request)
			}
			w.look()
			failed(protocol.NoSpace)
			return
		case n < 8:
			w.fate = []fate{loses, losesReply, comesLate, comesTwice, losesBoth}[w.rng.IntN(5)]
			w.tell(a, "fate %d", w.fate)
		}
	}
	resp, err := w.try(a.act.Request)
	w.look()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		failed(protocol.SessionGone)
	case resp != nil:
		w.step(a, protocol.Event{Kind: protocol.Replied, Reply: resp})
	case query:
		failed(protocol.Passing)
	default:
		failed(protocol.Unknown)
	}
}

// cut ends an attempt from outside, whatever it does. What it has sent may be carried out.
func (w *world) cut(a *actor) {
	if a.act.Do == protocol.DoSend {
		w.fate = []fate{loses, losesReply, comesLate}[w.rng.IntN(3)]
		w.request(a.act.Request)
		w.fate = arrives
	}
	kind := protocol.TimeUp
	if w.chance(2) {
		kind = protocol.SessionEnded
	}
	w.step(a, protocol.Event{Kind: kind, Err: errTest})
	if a.act.Do != protocol.DoEnd {
		w.tb.Fatalf("%s goes on after its end: %v", a.ID, a.act.Do)
	}
}

// move lets an attempt take one step.
func (w *world) move(a *actor, calm bool) {
	switch {
	case !calm && w.chance(40) && a.act.Do != protocol.DoEnd:
		w.cut(a)
		return
	case !calm && w.chance(8): // a hint that comes at any time
		w.hint(a)
		return
	}
	switch a.act.Do {
	case protocol.DoStay: // not begun
		w.step(a, protocol.Event{Kind: protocol.EventKind(w.rng.IntN(2))})
	case protocol.DoSend, protocol.DoQuery:
		w.answer(a, calm)
	case protocol.DoLearn:
		w.step(a, protocol.Event{Kind: protocol.Learnt, Epoch: w.epoch()})
	case protocol.DoPrepare:
		a.Value = protocol.Holder{Claim: a.ID, Owner: a.ID, Instance: "i", Epoch: a.Epoch.Value}.Encode()
		if a.Beside != nil {
			if a.Beside.Rev = 0; w.KV("/b") != nil {
				a.Beside.Rev = w.KV("/b").ModRevision
			}
		}
		w.step(a, protocol.Event{Kind: protocol.Prepared})
	case protocol.DoPause:
		w.step(a, protocol.Event{Kind: protocol.Resumed})
	case protocol.DoWait:
		w.hint(a)
	case protocol.DoEnd:
		w.release(a)
	}
}

func (w *world) hint(a *actor) {
	notice := w.KV(layout.Notice("i", a.ID))
	switch n := w.rng.IntN(8); {
	case n < 2 && len(w.events) > 0:
		w.step(a, w.events[len(w.events)-1-w.rng.IntN(min(4, len(w.events)))])
	case n < 4 && notice != nil:
		w.step(a, protocol.Event{Kind: protocol.Noticed, KV: notice})
	case n == 4 && a.act.Do == protocol.DoWait && a.act.Position.Own != nil && a.act.Position.Pred == nil:
		own := a.act.Position.Own
		w.step(a, protocol.Event{Kind: protocol.Opened, Over: &protocol.Over{
			Rev: own.ModRevision, Guard: []*pb.Compare{txn.ModifiedAt(own.Key, own.ModRevision), txn.OnLease(own.Key, own.Lease)},
		}})
	default:
		w.step(a, protocol.Event{Kind: protocol.Woken, Shares: w.chance(30)})
	}
}

// release ends the claim of an attempt that has won: it hands the key over, or frees it.
func (w *world) release(a *actor) {
	if a.held == nil {
		return
	}
	r := protocol.Release{Held: a.held, Noticed: a.Noticed, Noted: a.Ask.Note != "", Alone: true}
	in := r.Delete()
	if a.Line.Known && w.chance(2) {
		in, _ = r.Pass(w.readLine(r).Line)
	}
	w.tell(a, "releases")
	if resp := w.request(in); resp == nil || !resp.Succeeded {
		w.request(r.Delete())
	}
	a.held = nil
}

// other changes what the attempts know, from outside.
func (w *world) other() {
	a := w.actors[w.rng.IntN(len(w.actors))]
	switch w.rng.IntN(8) {
	case 0:
		w.tell(nil, "the epoch is raised")
		w.put(layout.Epoch(), fmt.Sprint(w.epoch().Value+1), 0)
	case 1:
		w.tell(a, "its session ends")
		w.End(a.Lease)
	case 2:
		w.tell(a, "its place is deleted")
		w.remove(a.PlaceKey())
	case 3:
		w.tell(nil, "the claim is deleted")
		w.remove(layout.Own("k"))
	case 4:
		w.put("/b", "x", 0)
	default:
		w.End('o')
	}
}

// background carries out one of the requests that are on their way, or one of the cleanups.
func (w *world) background() {
	if n := len(w.late); n > 0 && w.chance(2) || len(w.undos) == 0 && n > 0 {
		i := w.rng.IntN(n)
		in := w.late[i]
		w.late = slices.Delete(w.late, i, i+1)
		w.tell(nil, "a late request arrives")
		_, _ = w.Try(in)
	} else if n := len(w.undos); n > 0 {
		w.tell(nil, "an undo")
		undo := w.undos[0]
		w.undos = w.undos[1:]
		undo()
	}
	w.look()
}
