package protocol

// What an [Ending] does that is unsettled: no caller waits for it any more, so no line is read, and
// what is refused is not tried in another way. And what it does among many others, with Drops.

func (e *Ending) whenDropping(ev EndEvent) EndAction {
	switch ev.Kind {
	case EndReplied:
		if ev.Reply.Succeeded {
			return e.released(ev.Reply)
		}
		if s := (Owner{e.Held}).Judge(ev.Reply); s != Kept {
			return e.lost(s)
		}
	case EndUnknown, EndPassing, EndNoLease, EndCompacted, EndFinal:
	default:
		return e.unexpected(ev)
	}
	return e.unsettled()
}

// unsettled leaves the rest to the background.
func (e *Ending) unsettled() EndAction {
	e.state = endUnsettled
	return EndAction{Kind: EndUnsettled}
}

// resumed begins the rest, from its start each time.
func (e *Ending) whenUnsettled(ev EndEvent) EndAction {
	switch {
	case ev.Kind != EndResumes:
		return e.unexpected(ev)
	case e.Ops != nil:
		return e.send(endSettling)
	}
	return e.drop()
}

// drop deletes the claim.
func (e *Ending) drop() EndAction {
	e.request, e.to = e.Delete(), ""
	return e.send(endDeleting)
}

func (e *Ending) whenSettling(ev EndEvent) EndAction {
	switch ev.Kind {
	case EndReplied:
		if ev.Reply.Succeeded {
			return e.released(ev.Reply)
		}
	case EndUnknown, EndPassing:
		return e.unsettled()
	case EndNoLease, EndCompacted, EndFinal:
	default:
		return e.unexpected(ev)
	}
	e.Ops = nil // carried out before, or not to be
	return e.drop()
}

func (e *Ending) whenDeleting(ev EndEvent) EndAction {
	switch ev.Kind {
	case EndReplied:
		e.away = e.away || !ev.Reply.Succeeded
		if e.Local != nil { // its claim may stand in the place of this one
			e.request = Undo{Try: e.Local}.Build()
			return e.send(endUndoing)
		}
		if ev.Reply.Succeeded {
			return e.released(ev.Reply)
		}
		return e.releasedBefore()
	case EndUnknown, EndPassing, EndNoLease, EndCompacted, EndFinal:
		return e.unsettled()
	}
	return e.unexpected(ev)
}

func (e *Ending) whenUndoing(ev EndEvent) EndAction {
	switch ev.Kind {
	case EndReplied:
		return e.over(EndAction{Kind: EndReleased, Away: e.away})
	case EndUnknown, EndPassing, EndNoLease, EndCompacted, EndFinal:
		return e.unsettled()
	}
	return e.unexpected(ev)
}
