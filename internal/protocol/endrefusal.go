package protocol

import pb "go.etcd.io/etcd/api/v3/etcdserverpb"

// failed deals with a refusal by etcd.
func (e *Ending) failed(ev EndEvent) EndAction {
	switch {
	case e.to != "":
		return e.free() // the waiter is gone, or its claim needs more of etcd, such as space
	case e.Ops != nil && ev.Kind == EndNoLease: // that of the session, or one of the operations
		e.state = endAsking
		return EndAction{Kind: EndAsk}
	}
	return e.end()
}

func (e *Ending) whenAsking(ev EndEvent) EndAction {
	switch ev.Kind {
	case EndSessionGone:
		return e.lost(Kept)
	case EndSessionLives:
		return e.end()
	}
	return e.unexpected(ev)
}

func (e *Ending) whenReading(ev EndEvent) EndAction {
	if ev.Kind == EndReplied {
		return e.refused(ev.Reply)
	}
	return e.unread(ev)
}

// unread deals with a read that failed. The request is sent again, to be refused again.
func (e *Ending) unread(ev EndEvent) EndAction {
	switch ev.Kind {
	case EndUnknown, EndPassing:
		e.state = endLeaving
		return e.pause()
	case EndNoLease, EndFinal, EndCompacted:
		return e.failed(EndEvent{Kind: EndFinal})
	}
	return e.unexpected(ev)
}

// refused deals with a request that was refused for the reason in the reply.
func (e *Ending) refused(resp *pb.TxnResponse) EndAction {
	e.found = e.learn(resp)
	gone := e.found == Deleted || e.found == Replaced
	switch {
	case e.found == Kept:
		return e.again()
	case e.Ops == nil && e.found == EpochRaised:
		return e.free()
	case e.Ops == nil && e.sent:
		return e.releasedBefore()
	case e.Ops != nil && gone && e.Ops.proof() != "": // perhaps by a copy of the request
		return e.prove(first(resp.Responses[len(resp.Responses)-1]))
	}
	return e.lost(e.found)
}

// again hands the key to a line that has changed. One of several slots may have to wait until others
// are handed over: each of these succeeds once.
func (e *Ending) again() EndAction {
	slots := e.Mode.Keys().Slots
	switch {
	case e.frees: // it must have been kept, so this does not last
		e.state = endLeaving
		return e.pause()
	case e.tries <= mostHandOvers:
		return e.leave()
	case e.tries <= mostHandOvers+slots:
		e.state = endYielding
		return EndAction{Kind: EndPause}
	}
	return e.free()
}

func (e *Ending) whenYielding(ev EndEvent) EndAction {
	switch ev.Kind {
	case EndResumes:
		return e.leave()
	case EndTimeUp:
		return e.free()
	}
	return e.unexpected(ev)
}
