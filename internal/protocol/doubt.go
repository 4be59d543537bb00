package protocol

import "github.com/etcdclaims/claims/internal/txn"

// A request that has failed may have been carried out, or may still arrive. Confirm finds the outcome
// out. It also puts a void, which stops what arrives later: a request that was carried out may arrive
// once more, and would claim the key again after its release.

// failed deals with a request that may claim the key, and has failed.
func (a *Acquisition) failed(ev Event) Action {
	switch ev.Class {
	case Unknown, NoSpace:
		a.unsure, a.uncertain, a.answered, a.open, a.tries = true, true, ev.Class == NoSpace, ev.Err, 0
		return a.confirm(ev)
	case SessionGone:
		return a.lost(ev)
	case Transient, LeaseGone, Barred:
		if a.claims == Advancing {
			a.position = Position{} // not known any more
			return a.onward()
		}
		return a.end(AnswerLater, Action{Err: ev.Err})
	}
	return a.refused(ev)
}

func (a *Acquisition) confirmation() Confirm {
	return Confirm{Try: &a.Try, Enqueues: a.enqueues, Answered: a.answered}
}

func (a *Acquisition) confirm(Event) Action {
	a.phase = Confirming
	return Action{Do: DoSend, Request: a.confirmation().Build()}
}

func (a *Acquisition) confirmed(ev Event) Action {
	rev := a.confirmation().Judge(ev.Reply)
	a.unsure = false // it has put a void, or none arrives any more
	if rev == 0 {
		return a.notDone()
	}
	if a.enqueues || !ev.Reply.Succeeded {
		a.handedOver() // for all that is known
	}
	if a.claims == Joining { // the lost request may have been carried out twice
		return a.leave(rev)
	}
	return a.won(rev)
}

// leave gives up the place that a try has in line although it has the key. Until then it is not won:
// after its release, that place would be handed the key for a caller that is gone.
func (a *Acquisition) leave(rev int64) Action {
	a.has, a.uncertain = rev, true
	return a.query(Leaving, Leave{&a.Try, rev}.Build())
}

// left gives up what the place was handed meanwhile.
func (a *Acquisition) left(ev Event) Action {
	if ev.Reply.Responses[0].GetResponseRange() != nil { // of a Leave, not of a Drop
		if r, some := (Drop{Try: &a.Try, Claims: a.Elsewhere(ev.Reply)}).Build(); some {
			return a.query(Leaving, r)
		}
	}
	return a.won(a.has)
}

// unleft gives up all, if not even the place can be given up.
func (a *Acquisition) unleft(ev Event) Action {
	if a.open == nil {
		a.open = ev.Err
	}
	return a.unsettled(ev)
}

// notDone ends a try that does not have the key. None of its requests arrives any more.
func (a *Acquisition) notDone() Action {
	if a.answered {
		return a.end(AnswerFailed, Action{Err: txn.Failed(a.open)})
	}
	// The claim may have come and gone, and what it put beside it would stay.
	return a.end(AnswerAgain, Action{Undo: a.Beside != nil})
}

// doubted deals with a Confirm that has failed.
func (a *Acquisition) doubted(ev Event) Action {
	switch {
	case ev.Class == SessionGone && len(a.Ask.Then) == 0:
		return a.notDone() // whatever arrives late needs the lease
	case ev.Class == Unknown, ev.Class == NoSpace, ev.Class == Transient:
		a.tries++
		return a.pause(Doubting, a.tries-1)
	}
	// With SessionGone the claim is gone, but operations of the caller may have been carried out.
	return a.unsettled(ev)
}

// unsettled ends a try while the outcome of its request is unknown.
func (a *Acquisition) unsettled(ev Event) Action {
	return a.end(AnswerUnsettled, Action{Err: a.open, Why: ev.Err, Undo: true})
}

// Follows makes the undo of a try, which was sent together with another, as careful as that one's.
func (a *Acquisition) Follows(first *Acquisition) {
	a.Ticket, a.unsure, a.uncertain, a.answered = first.Ticket, first.unsure, first.uncertain, first.answered
}
