package protocol

import (
	"strings"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// An attempt to acquire a key is a machine: in each phase an event leads to an action and the next
// phase. The ends are those of type Answer.
//
//	Idle        BeginTake -> send Take (Taking)           BeginJoin -> send Join (Joining)
//	Taking      Replied   -> won | held | query Look (Looking) | learn (Learning) | query Clear (Clearing)
//	Looking     Replied   -> won | held | learn (Learning) | query Clear (Clearing)
//	            Failed    -> again | failed
//	Joining     Replied   -> won | query Leave (Leaving) | onward | failed | learn (Learning)
//	Advancing   Replied   -> won | learn (Learning)
//	Taking, Joining, Advancing
//	            Failed    -> unknown: send Confirm (Confirming) | later | failed; Advancing: pause (Resting)
//	Confirming  Replied   -> won | query Leave (Leaving) | again | failed: no space
//	            Failed    -> pause (Doubting) | again: nothing arrives any more | unsettled
//	Doubting    Resumed   -> send Confirm (Confirming)
//	Learning    Learnt    -> Take, Look: held | behind | unmet | again | failed | query Clear (Clearing)
//	                         Join: again         Advance: won | unmet | lost place | failed | onward
//	Clearing    Replied   -> held | again; in line: wait (Waiting) | advance
//	            Failed    -> again | failed; in line: wait (Waiting)
//	Leaving     Replied   -> won | query Drop (Leaving)     Failed -> unsettled
//	Waiting     Noticed   -> won                 Heard -> won | advance | stay
//	            Woken, Opened -> advance | again: shares a claim of its client
//	Resting     Resumed   -> advance
//	Preparing   Prepared  -> send Advance (Advancing)     Failed -> pause (Resting) | failed
//	Taking, Joining, Advancing, Confirming, Doubting, Leaving
//	            TimeUp, SessionEnded -> unsettled
//	(others)    TimeUp    -> stopped             SessionEnded -> later; in line: lost place
//
// "onward": query Clear (Clearing) if only the record of a shared key is in the way. Wait (Waiting) if
// the key is held, or others are before the try. Else advance, after a pause (Resting) if the last
// Advance has shown nothing new. "advance": prepare (Preparing) if the try must be made ready; then
// send Advance (Advancing).

// Phase is what an acquisition waits for.
type Phase uint8

// The phases of an acquisition.
const (
	Idle       Phase = iota // nothing was sent yet
	Taking                  // Take was sent
	Looking                 // Look was sent
	Joining                 // Join was sent
	Advancing               // Advance was sent
	Confirming              // Confirm was sent
	Doubting                // pauses before another Confirm
	Learning                // the epoch is being learnt
	Clearing                // Clear was sent
	Leaving                 // has the key, and Leave or Drop was sent
	Waiting                 // waits in line
	Resting                 // in line, pauses before another Advance
	Preparing               // in line, is made ready for another Advance
	Ended
	phases = iota
)

// Acquisition is one attempt to acquire a key. It decides what its try sends, and what each reply
// means. Its driver calls Step with each event, and carries out the action that Step returns.
//
// An Acquisition makes one attempt: another needs another id. It is not safe for concurrent use. A
// copy can be stepped apart from the original.
type Acquisition struct {
	Try
	Supersedes *Held // the client's own claim that it takes the key from, or nil; see Supersede and Succeed

	// What becomes part of the claim.
	HandedAt int64  // revision at which a releaser handed it the key, 0 if none did
	Line     Line   // the waiters behind it, as far as known
	Trace    string // what the holder that handed it the key has passed on
	Noticed  bool   // there is, or may be, a notice for it

	phase     Phase
	claims    Phase // Taking, Joining or Advancing: the last request that may have claimed the key
	enqueues  bool  // a place in line may have been put
	placed    bool  // it has had a place in line
	unsure    bool  // a request may still arrive
	uncertain bool  // that was so once, or a place was taken twice
	answered  bool  // etcd has answered the request with the unknown outcome: it does not arrive any more
	stale     bool  // the value of the claim must be made anew
	tries     int32 // advances since it last waited, or pauses since an outcome became unknown
	position  Position
	pending   *Stands // what was read, until the epoch is learnt or the record cleared
	open      error   // the unknown outcome
	has       int64   // revision at which it has, or had, the key
}

// transitions is which method handles an event in a phase. The method cut handles TimeUp and
// SessionEnded in all phases. Any other event is ignored.
var transitions = [phases][eventKinds]func(*Acquisition, Event) Action{
	Idle:       {BeginTake: (*Acquisition).take, BeginJoin: (*Acquisition).join},
	Taking:     {Replied: (*Acquisition).taken, Failed: (*Acquisition).failed},
	Looking:    {Replied: (*Acquisition).looked, Failed: (*Acquisition).unread},
	Joining:    {Replied: (*Acquisition).joined, Failed: (*Acquisition).failed},
	Advancing:  {Replied: (*Acquisition).advanced, Failed: (*Acquisition).failed},
	Confirming: {Replied: (*Acquisition).confirmed, Failed: (*Acquisition).doubted},
	Doubting:   {Resumed: (*Acquisition).confirm},
	Learning:   {Learnt: (*Acquisition).learnt, Failed: (*Acquisition).refused},
	Clearing:   {Replied: (*Acquisition).cleared, Failed: (*Acquisition).uncleared},
	Leaving:    {Replied: (*Acquisition).left, Failed: (*Acquisition).unleft},
	Waiting: {
		Noticed: (*Acquisition).noticed, Heard: (*Acquisition).heard,
		Woken: (*Acquisition).woken, Opened: (*Acquisition).woken,
	},
	Resting:   {Resumed: (*Acquisition).ready},
	Preparing: {Prepared: (*Acquisition).advance, Failed: (*Acquisition).unprepared},
}

// Step takes an event in, and returns what is to be done next.
func (a *Acquisition) Step(ev Event) Action {
	if handle := transitions[a.phase][ev.Kind]; handle != nil {
		return handle(a, ev)
	}
	if ev.Kind == TimeUp || ev.Kind == SessionEnded {
		return a.cut(ev)
	}
	return Action{}
}

// cut ends a try whose caller waits no longer, or whose session has ended.
func (a *Acquisition) cut(ev Event) Action {
	switch a.phase {
	case Ended:
		return Action{}
	case Taking, Joining, Advancing:
		a.unsure, a.uncertain, a.open = true, true, ev.Err // the answer does not come any more
		return a.unsettled(ev)
	case Confirming, Doubting:
		return a.unsettled(ev)
	case Leaving:
		return a.unleft(ev)
	}
	if ev.Kind == TimeUp {
		return a.end(AnswerStopped, Action{Err: ev.Err})
	}
	return a.lost(ev)
}

// lost ends a try whose session has ended.
func (a *Acquisition) lost(ev Event) Action {
	if a.placed {
		return a.end(AnswerLostPlace, Action{Err: ev.Err})
	}
	return a.end(AnswerLater, Action{Err: ev.Err})
}

// Phase returns where the acquisition is.
func (a *Acquisition) Phase() Phase { return a.phase }

// Settled reports whether all requests of the try were answered, so that none that names its place
// arrives any more.
func (a *Acquisition) Settled() bool { return !a.uncertain }

// Refused reports whether the try has ended, is settled, and never had a claim.
func (a *Acquisition) Refused() bool { return a.phase == Ended && a.has == 0 && a.Settled() }

// Placed reports whether the try has, or had, a place in line.
func (a *Acquisition) Placed() bool { return a.placed }

// Supersede makes the try take the key from a claim of its own client, nil for none.
func (a *Acquisition) Supersede(h *Held) {
	if a.Supersedes, a.Over = h, nil; h != nil {
		a.Over = Supersede(h)
	}
}

// Succeed makes the try take the key from a claim of its own client that is released, and whose key is
// still there.
func (a *Acquisition) Succeed(h *Held) { a.Supersedes, a.Over = h, Succeed(h) }

// NamesLeases reports whether the last request can name other leases than the session's.
func (a *Acquisition) NamesLeases() bool {
	return len(a.Ask.Then) > 0 || a.Beside != nil || a.Over != nil && a.Over.Notify != nil
}

// Undoing returns the step that removes all that the try has put or may yet put. besides put back
// what was beside the claim.
func (a *Acquisition) Undoing(besides []*pb.RequestOp) Undo {
	return Undo{Try: &a.Try, Enqueues: a.enqueues, Unsure: a.unsure && !a.answered, Besides: besides}
}

// send returns a request that may claim the key.
func (a *Acquisition) send(in Phase, r txn.Request) Action {
	a.phase, a.claims = in, in
	return Action{Do: DoSend, Request: r}
}

// query returns a request that puts nothing of the try.
func (a *Acquisition) query(in Phase, r txn.Request) Action {
	a.phase = in
	return Action{Do: DoQuery, Request: r}
}

// end ends the acquisition. A try that does not have the key gives up its place in line.
func (a *Acquisition) end(how Answer, with Action) Action {
	a.phase = Ended
	with.Do, with.End = DoEnd, how
	with.Position = a.position
	with.Undo = with.Undo || a.placed && how != AnswerWon
	return with
}

func (a *Acquisition) won(rev int64) Action {
	a.has = rev
	return a.end(AnswerWon, Action{Rev: rev})
}

// handedOver notes that a releaser handed the key over, for all that is known: then there is a
// notice that was not read.
func (a *Acquisition) handedOver() { a.Noticed, a.Line = true, Unread }

func (a *Acquisition) take(Event) Action { return a.send(Taking, Take{&a.Try}.Build()) }

// taken judges the reply to a Take. Its second branch reads only what explains most refusals.
func (a *Acquisition) taken(ev Event) Action {
	taken := Take{&a.Try}.Judge(ev.Reply)
	switch {
	case taken.Rev > 0:
		return a.won(taken.Rev)
	case taken.Seen != nil:
		return a.learn(Stands{Seen: *taken.Seen})
	case a.Supersedes == nil && taken.Own != nil:
		return a.heldBy(taken.Own, 0)
	case a.Supersedes != nil && a.Supersedes.OfKey(taken.OwnKey) != Kept:
		return a.supersedesNone(a.Supersedes.OfKey(taken.OwnKey), taken.Own, 0)
	case a.changed(taken.Beside):
		return a.end(AnswerAgain, Action{News: true, Beside: taken.Beside})
	}
	return a.query(Looking, Look{&a.Try}.Build())
}

func (a *Acquisition) looked(ev Event) Action {
	v := Look{&a.Try}.Judge(ev.Reply)
	if rev := a.Has(v); rev > 0 {
		return a.won(rev)
	}
	found := Kept
	if a.Supersedes != nil {
		found = a.Supersedes.OfEpoch(v.EpochKey)
	}
	if found != Kept && v.Own != nil {
		return a.supersedesNone(found, v.Own, v.Waiting)
	}
	act := a.learn(Stands{Seen: v})
	act.Found = found
	return act
}

// unread deals with a Look that has failed. The next try reads what is in the way.
func (a *Acquisition) unread(ev Event) Action {
	if ev.Class == Refused {
		return a.end(AnswerFailed, Action{Err: ev.Err})
	}
	return a.end(AnswerAgain, Action{})
}

// supersedesNone ends a try whose client has lost the claim that it was to supersede.
func (a *Acquisition) supersedesNone(found State, own *mvccpb.KeyValue, waiting int64) Action {
	act := Action{}
	if own == nil {
		act = a.end(AnswerAgain, act) // free
	} else {
		act = a.heldBy(own, waiting)
	}
	act.Found = found
	return act
}

// learn has the driver learn the epoch, before the machine judges what was read.
func (a *Acquisition) learn(read Stands) Action {
	a.phase, a.pending = Learning, &read
	return Action{Do: DoLearn, EpochKey: read.EpochKey, Rev: read.Rev}
}

func (a *Acquisition) learnt(ev Event) Action {
	switch a.claims {
	case Joining:
		return a.end(AnswerAgain, Action{}) // nothing was done under the other epoch
	case Advancing:
		return a.stand(ev.Epoch)
	}
	return a.judge(ev.Epoch)
}

// judge finds out why the key could not be taken.
func (a *Acquisition) judge(epoch *txn.Epoch) Action {
	v := a.pending.Seen
	verdict, err := a.Judge(v, epoch)
	switch {
	case err != nil:
		return a.end(AnswerFailed, Action{Err: err})
	case verdict.Outcome == HeldByOther:
		return a.heldBy(verdict.Own, verdict.Waiting)
	case verdict.Outcome == OtherEpoch, verdict.Outcome == OtherClaim:
		return a.end(AnswerAgain, Action{}) // see again who holds it
	case a.changed(v.Beside):
		return a.end(AnswerAgain, Action{News: true, Beside: v.Beside})
	case verdict.Outcome == BehindLine:
		return a.end(AnswerBehind, Action{Waiting: verdict.Waiting})
	case verdict.Outcome == Unmet:
		return a.end(AnswerUnmet, Action{})
	}
	return a.end(AnswerAgain, Action{}) // what stood in the way is gone already
}

// changed reports whether the key beside the claim is another than the try requires.
func (a *Acquisition) changed(kv *mvccpb.KeyValue) bool {
	switch b := a.Beside; {
	case b == nil:
		return false
	case kv == nil:
		return b.Rev != 0
	default:
		return kv.ModRevision != b.Rev
	}
}

// heldBy ends a try that own excludes. If own is the record of a shared key, the key may have no
// holder any more.
func (a *Acquisition) heldBy(own *mvccpb.KeyValue, waiting int64) Action {
	if a.namesake(own) {
		return a.end(AnswerAgain, Action{})
	}
	if IsShared(own) {
		a.pending = &Stands{Seen: Seen{Sight: Sight{Own: own}, Waiting: waiting}}
		return a.clears(own)
	}
	return a.end(AnswerHeld, Action{Own: own, Waiting: waiting})
}

// namesake reports whether own is a claim under the name that the try's shared claim is to have: that
// of an earlier one, which a restore has brought back. The name is of no use.
func (a *Acquisition) namesake(own *mvccpb.KeyValue) bool {
	keys := a.Mode.Keys()
	is := own != nil && keys.Shares != "" && string(own.Key) == a.Own(keys.Claim)
	a.uncertain = a.uncertain || is
	return is
}

// clears deletes the record of a shared key if no holder is left.
func (a *Acquisition) clears(record *mvccpb.KeyValue) Action {
	return a.query(Clearing, a.clear(record).Build())
}

func (a *Acquisition) clear(record *mvccpb.KeyValue) Clear {
	return Clear{Layout: a.Layout, Key: strings.TrimPrefix(string(record.Key), a.Own("")), Record: record}
}

func (a *Acquisition) cleared(ev Event) Action {
	record := a.position.Own
	if !a.placed {
		record = a.pending.Own
	}
	n := a.clear(record).Judge(ev.Reply)
	switch {
	case a.placed && n == 0:
		a.position = Position{Next: true}
		return a.ready(ev)
	case a.placed:
		return a.wait()
	case n == 0: // it was the record of a key without shared holders, and may be gone
		return a.end(AnswerAgain, Action{})
	}
	return a.end(AnswerHeld, Action{Own: record, Waiting: a.pending.Waiting, Sharers: n})
}

func (a *Acquisition) uncleared(ev Event) Action {
	switch {
	case ev.Class == Refused:
		return a.end(AnswerFailed, Action{Err: ev.Err})
	case a.placed:
		return a.wait()
	}
	return a.end(AnswerAgain, Action{})
}

// refused ends a try whose action would fail again.
func (a *Acquisition) refused(ev Event) Action { return a.end(AnswerFailed, Action{Err: ev.Err}) }
