package protocol

import (
	"fmt"

	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Ending decides how a claim ends: by its release, with or without operations of its holder, and by
// the hand-over to a caller of the same client. A driver calls Step with an event, carries out the
// action, and so on until the action ends the call. In the background it then goes on if the ending
// is unsettled. An Ending is a value: a copy goes on by itself. It is not safe for concurrent use.
//
// What follows in each state, in capitals if it ends the call:
//
//	new        begins                      learning if there may be a line and no place is known; else giving or leaving
//	           begins, of those that drop  dropping
//	           left                        UNSETTLED
//	learning   whatever comes              giving if there is a Local, else leaving
//	giving     carried out                 GIVEN
//	           refused                     GIVEN if Local has the key; giving if the claim is kept; else leaving
//	           unknown, passing            pausing
//	           no lease, final             leaving; pausing if sent
//	leaving    carried out                 RELEASED
//	           refused                     reading, unless the reply has the reason
//	           unknown, passing            pausing
//	           no lease, final             to a waiter: leaving, freed; no lease, with operations: asking; else ends
//	reading    kept                        leaving; later yielding, if there are slots; at last leaving, freed
//	           epoch raised                leaving, freed; with operations: LOST
//	           gone                        LOST; if sent: RELEASED; with operations: proving
//	           record gone                 as kept; with operations: LOST
//	           passing                     pausing, then leaving
//	           final                       as in leaving
//	proving    the claim ended so          RELEASED
//	           else, compacted             LOST
//	           passing, final              as in reading
//	asking     session gone                LOST
//	           session lives               ends
//	pausing    resumes                     the same request
//	           time is up                  of giving, unless sent: leaving; else ends
//	yielding   resumes                     leaving
//	           time is up                  leaving, freed
//	dropping   carried out                 RELEASED
//	           refused                     LOST
//	           whatever else               UNSETTLED
//	unsettled  resumes                     settling if there are operations, else deleting
//	settling   carried out                 RELEASED
//	           unknown, passing            UNSETTLED
//	           refused, no lease, final    deleting
//	deleting   carried out, refused        RELEASED; of giving: undoing
//	           whatever else               UNSETTLED
//	undoing    carried out                 RELEASED
//	           whatever else               UNSETTLED
//
// Ends: UNSETTLED; with operations of which none may have been carried out: STAYS. Sent: an outcome was
// unknown. Freed: the key is not handed over any more. Every request gives the claim up under its
// guard, so only one of them can be carried out.
type Ending struct {
	Release // the step. Alone and Trace may be set again before each Step

	Line  Line    // behind the claim, as far as known
	Ops   *EndOps // what is carried out with the release, or nil
	Frees bool    // the first in line is not handed the key, but sees that it is free
	Drops bool    // one request alone frees the key: many claims are given up at once

	// Local is the try of a caller of the same client that gets the key, if it came before the first
	// in line; or nil. It has the session of the claim, and its mode no record.
	Local *Try
	// Arrival is the revision before which that caller came, 0 as long as it is not known. It may be
	// set again before each Step.
	Arrival int64

	state   endState
	after   endState    // that a pause returns to
	request txn.Request // that gives the claim up
	to      string      // the attempt that it hands the key to, or ""
	tries   int         // how many requests were sent that give the claim up
	sent    bool        // one of them may have been carried out
	frees   bool
	locals  LocalFate // of the next action
	found   State     // why a request was refused
	past    Past      // the proof that is being read
	away    bool      // the claim was gone when it was deleted
}

// endState is what an ending waits for.
type endState int

const (
	endNew       endState = iota
	endLearning           // the line is read
	endGiving             // the claim of Local is put in the place of this one
	endLeaving            // the key is handed over or freed
	endReading            // why that was refused is read
	endProving            // how the claim went is read
	endAsking             // the session finds out whether its lease is gone
	endPausing            // before the next try
	endYielding           // while other slots are handed over
	endDropping           // the key is freed, among others
	endUnsettled          // the rest is for the background
	endSettling           // the operations are sent once more
	endDeleting           // the claim is deleted
	endUndoing            // the claim of Local is deleted
	endOver
)

var endNames = [...]string{
	"new", "learning", "giving", "leaving", "reading", "proving", "asking", "pausing", "yielding", "dropping",
	"unsettled", "settling", "deleting", "undoing", "over",
}

// String names the state.
func (e *Ending) String() string { return endNames[e.state] }

// mostHandOvers is how often a release that was refused tries again, without a pause, to hand the key
// to a line that has changed meanwhile. After that it frees the key, and the waiters that watch it
// claim it.
const mostHandOvers = 9

// Step returns what is to be done after the event. It panics on an event that cannot follow the last
// action.
func (e *Ending) Step(ev EndEvent) EndAction {
	a := e.when(ev)
	a.Locals, e.locals = e.locals, LocalsStay
	return a
}

// when is what follows from an event in each state. By a table of methods, every ending would escape
// to the heap.
func (e *Ending) when(ev EndEvent) EndAction {
	switch e.state {
	case endNew:
		return e.whenNew(ev)
	case endLearning:
		return e.whenLearning(ev)
	case endGiving:
		return e.whenGiving(ev)
	case endLeaving:
		return e.whenLeaving(ev)
	case endReading:
		return e.whenReading(ev)
	case endProving:
		return e.whenProving(ev)
	case endAsking:
		return e.whenAsking(ev)
	case endPausing:
		return e.whenPausing(ev)
	case endYielding:
		return e.whenYielding(ev)
	case endDropping:
		return e.whenDropping(ev)
	case endUnsettled:
		return e.whenUnsettled(ev)
	case endSettling:
		return e.whenSettling(ev)
	case endDeleting:
		return e.whenDeleting(ev)
	case endUndoing:
		return e.whenUndoing(ev)
	}
	return e.unexpected(ev)
}

func (e *Ending) unexpected(ev EndEvent) EndAction {
	panic(fmt.Sprintf("protocol: an ending that is %s cannot have the event %d", e.String(), ev.Kind))
}

func (e *Ending) whenNew(ev EndEvent) EndAction {
	e.frees = e.Frees
	if e.Ops != nil {
		e.locals = LocalsEnqueue // how it ends may stay unknown for long
	}
	switch ev.Kind {
	case EndBegins:
	case EndLeft:
		if e.frees = true; e.Ops != nil {
			e.build() // without them, drop makes the request
		}
		return e.unsettled()
	default:
		return e.unexpected(ev)
	}
	if e.Drops {
		e.request, e.to = e.Delete(), ""
		e.request.In.Failure = append(Owner{e.Held}.Reads(), e.request.In.Failure...)
		return e.send(endDropping)
	}
	if e.Prefers && len(e.Line.Next) > 0 {
		e.Line = Unread // those were in another order
	}
	if !e.frees && len(e.Line.Next) == 0 && e.Line.More {
		return e.read(endLearning, e.Behind()) // which costs less than a hand-over that is refused
	}
	return e.start()
}

func (e *Ending) whenLearning(ev EndEvent) EndAction {
	switch ev.Kind {
	case EndReplied:
		e.learn(ev.Reply)
	case EndUnknown, EndPassing, EndNoLease, EndCompacted, EndFinal: // then a request finds out
	default:
		return e.unexpected(ev)
	}
	return e.start()
}

// learn takes over what was read of the claim and the line behind it.
func (e *Ending) learn(resp *pb.TxnResponse) State {
	held := *e.Held // a copy of the ending has what it had
	e.Held = &held
	read := e.JudgeLine(resp)
	if read.State != Kept {
		return read.State
	}
	e.Line = read.Line
	if e.Ops != nil {
		return e.Record(resp) // without operations it is given up with and without its record
	}
	return Kept
}

func (e *Ending) start() EndAction {
	if e.Local != nil {
		return e.give()
	}
	return e.leave()
}

// give puts the claim of the local waiter in the place of this one.
func (e *Ending) give() EndAction {
	if next := e.Line.Next; len(next) > 0 && !e.sent && (e.Arrival == 0 || e.Arrival >= next[0].Rev) {
		return e.leaveInstead(LocalsReturn)
	}
	e.request, e.to = e.Within(e.Line, e.Local.Value, e.Local.Lease), e.Local.ID
	return e.send(endGiving)
}

// leaveInstead gives the key to no local waiter.
func (e *Ending) leaveInstead(locals LocalFate) EndAction {
	e.Local, e.locals, e.tries = nil, locals, 0
	return e.leave()
}

func (e *Ending) whenGiving(ev EndEvent) EndAction {
	switch ev.Kind {
	case EndReplied:
		rev := ev.Reply.Header.GetRevision()
		if !ev.Reply.Succeeded {
			rev = e.Local.Found(first(ev.Reply.Responses[0])) // by a request whose reply was lost
		}
		if rev > 0 {
			return e.over(EndAction{Kind: EndGiven, To: e.to, Rev: rev})
		}
		if e.learn(ev.Reply) == Kept {
			return e.give()
		}
		return e.leaveInstead(LocalsEnqueue)
	case EndUnknown:
		e.sent = true
		return e.pause()
	case EndPassing:
		return e.pause()
	case EndNoLease, EndFinal, EndCompacted:
		if e.sent {
			return e.pause()
		}
		return e.leaveInstead(LocalsEnqueue)
	}
	return e.unexpected(ev)
}

// build makes the request that hands the key over or frees it.
func (e *Ending) build() {
	if e.frees {
		e.request, e.to = e.Free(), ""
	} else {
		e.request, e.to = e.Pass(e.Line)
	}
	if e.Ops != nil {
		e.request = e.With(e.request, e.Ops.Ops, e.Ops.Concern)
	}
}

func (e *Ending) leave() EndAction {
	e.build()
	return e.send(endLeaving)
}

// free frees the key: the first in line sees that.
func (e *Ending) free() EndAction {
	e.frees = true
	return e.leave()
}

func (e *Ending) whenLeaving(ev EndEvent) EndAction {
	switch ev.Kind {
	case EndReplied:
		switch {
		case ev.Reply.Succeeded:
			return e.released(ev.Reply)
		case len(ev.Reply.Responses) > 0:
			return e.refused(ev.Reply)
		}
		// The reason is read only now: few are refused, and the read would be part of each.
		r := e.Behind()
		if e.Ops != nil && e.Ops.proof() != "" {
			r.In.Success = append(r.In.Success, txn.Get([]byte(e.Ops.proof())))
		}
		return e.read(endReading, r)
	case EndUnknown:
		e.sent, e.locals = true, LocalsEnqueue // the outcome may stay unknown for long
		return e.pause()
	case EndPassing:
		return e.pause()
	case EndNoLease, EndFinal, EndCompacted:
		return e.failed(ev)
	}
	return e.unexpected(ev)
}

func (e *Ending) whenPausing(ev EndEvent) EndAction {
	switch {
	case ev.Kind == EndResumes:
		return e.send(e.after)
	case ev.Kind != EndTimeUp:
		return e.unexpected(ev)
	case e.after == endGiving && !e.sent:
		return e.leaveInstead(LocalsEnqueue)
	case e.after == endGiving:
		e.locals = LocalsReturn
	}
	return e.end()
}

// end ends the call with no result from etcd.
func (e *Ending) end() EndAction {
	if e.Ops == nil || e.sent {
		return e.unsettled()
	}
	return e.over(EndAction{Kind: EndStays})
}

// send sends the request that gives the claim up.
func (e *Ending) send(s endState) EndAction {
	e.state = s
	e.tries++
	return EndAction{Kind: EndSend, Request: e.request, To: e.to, Tries: e.tries - 1}
}

func (e *Ending) read(s endState, r txn.Request) EndAction {
	e.state = s
	return EndAction{Kind: EndRead, Request: r}
}

func (e *Ending) pause() EndAction {
	e.state, e.after = endPausing, e.state
	return EndAction{Kind: EndPause, Tries: e.tries - 1}
}

func (e *Ending) over(a EndAction) EndAction {
	e.state = endOver
	return a
}

// released ends a claim by the request that has the reply.
func (e *Ending) released(resp *pb.TxnResponse) EndAction {
	a := EndAction{Kind: EndReleased, To: e.to, Rev: resp.Header.GetRevision()}
	ops := 0
	if e.Ops != nil {
		ops = len(e.Ops.Ops)
	}
	a.Emptied, a.Remains = e.Emptied(resp, ops)
	return e.over(a)
}

// releasedBefore ends a claim that a request has released whose reply was lost.
func (e *Ending) releasedBefore() EndAction { return e.over(EndAction{Kind: EndReleased, Away: true}) }

func (e *Ending) lost(s State) EndAction {
	return e.over(EndAction{Kind: EndLost, State: s, Unsure: e.sent})
}
