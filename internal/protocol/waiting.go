package protocol

import "github.com/etcdclaims/claims/internal/txn"

// The methods of an acquisition in line.

func (a *Acquisition) join(Event) Action {
	a.enqueues = true
	return a.send(Joining, Join{&a.Try}.Build())
}

func (a *Acquisition) joined(ev Event) Action {
	joined, err := Join{&a.Try}.Judge(ev.Reply)
	if err == nil {
		switch {
		case joined.Old: // not even a place was taken
			return a.learn(Stands{Seen: Seen{EpochKey: joined.Epoch, Rev: joined.At}})
		case joined.Rev > 0 && !joined.Twice:
			return a.won(joined.Rev)
		}
	}
	a.placed = true
	a.Supersede(nil) // in line like any caller, whatever becomes of that claim
	if err != nil {
		return a.end(AnswerFailed, Action{Err: err})
	}
	if joined.Twice {
		return a.leave(joined.Rev)
	}
	a.position = joined.Position
	return a.onward()
}

// onward waits while others are before the try, or advances.
func (a *Acquisition) onward() Action {
	a.Over = nil
	switch p := a.position; {
	case a.namesake(p.Own):
		return a.end(AnswerAgain, Action{})
	case p.Readers:
		return a.clears(p.Own)
	case p.Own != nil || p.Pred != nil || p.Behind:
		return a.wait()
	case a.tries > 0 && !p.Next:
		return a.pause(Resting, a.tries-1)
	}
	return a.ready(Event{})
}

func (a *Acquisition) wait() Action {
	a.phase = Waiting
	return Action{Do: DoWait, Position: a.position}
}

func (a *Acquisition) pause(in Phase, before int32) Action {
	a.phase = in
	return Action{Do: DoPause, Pauses: int(before)}
}

// noticed reads a releaser's notice. The transaction that put the notice put the claim, too. So the
// notice proves the claim, and its revision is the fence.
func (a *Acquisition) noticed(ev Event) Action {
	if string(ev.KV.Key) != a.Notice(a.Instance, a.ID) {
		return Action{}
	}
	n, err := DecodeNotice(ev.KV.Value)
	if err != nil {
		return Action{Err: err}
	}
	a.Notified(n, ev.KV.ModRevision)
	a.HandedAt, a.Noticed, a.Trace = ev.KV.ModRevision, true, n.Trace
	a.Line = Line{Next: n.Next, More: n.More, Known: true}
	return a.won(a.HandedAt)
}

// heard judges an event of what the try waits for.
func (a *Acquisition) heard(ev Event) Action {
	rev, again := a.Heard(ev.KV, ev.Deleted)
	switch {
	case rev > 0: // its notice has not arrived yet
		return a.given(rev)
	case again:
		return a.woken(ev)
	}
	return Action{}
}

func (a *Acquisition) given(rev int64) Action {
	a.HandedAt = rev
	a.handedOver()
	return a.won(rev)
}

// woken ends the wait. A caller that may share a claim of its client leaves the line: its turn would
// only come after the client has released the key.
func (a *Acquisition) woken(ev Event) Action {
	if ev.Shares {
		return a.end(AnswerAgain, Action{})
	}
	a.Over, a.tries = ev.Over, 0
	return a.ready(ev)
}

// ready sends an Advance, or has the try prepared for that.
func (a *Acquisition) ready(Event) Action {
	if keys := a.Mode.Keys(); a.stale || a.Beside != nil || keys.Mark != "" && !keys.Joins {
		a.phase = Preparing
		return Action{Do: DoPrepare}
	}
	return a.advance(Event{})
}

func (a *Acquisition) unprepared(ev Event) Action {
	if ev.Class == Refused {
		return a.refused(ev)
	}
	a.Over, a.position = nil, Position{}
	a.tries++
	return a.pause(Resting, a.tries-1)
}

func (a *Acquisition) advance(Event) Action {
	a.stale = false
	a.tries++
	return a.send(Advancing, Advance{&a.Try}.Build())
}

func (a *Acquisition) advanced(ev Event) Action {
	if ev.Reply.Succeeded {
		a.Line = Unread
		a.Granted(ev.Reply.Header.Revision)
		return a.won(ev.Reply.Header.Revision)
	}
	return a.learn(Advance{&a.Try}.Judge(ev.Reply))
}

// stand finds out where in line the try is.
func (a *Acquisition) stand(epoch *txn.Epoch) Action {
	read := *a.pending
	p, rev, at, err := a.Stand(read, epoch)
	if err != nil {
		return a.end(AnswerFailed, Action{Err: err})
	}
	free := p.Own == nil && p.Pred == nil
	switch {
	case at == Given:
		return a.given(rev)
	case at == Out: // an operator deleted it, or the lease ended, and then the session knows
		return a.end(AnswerLostPlace, Action{})
	case at == Moved:
		a.stale = true
	case free && a.changed(read.Beside):
		a.position = p
		act := a.onward()
		act.News, act.Beside = true, read.Beside
		return act
	case at == Denied:
		return a.end(AnswerUnmet, Action{})
	}
	a.position = p
	return a.onward()
}
