package protocol

import "github.com/etcdclaims/claims/internal/txn"

// AllOrNone is one attempt to claim several keys in one transaction. The embedded try is the first,
// and has what the caller asks for beside the keys. All tries have its id. It begins with BeginTake.
//
// Action.Undo concerns all tries, under the ticket of the first.
type AllOrNone struct {
	*Acquisition
	With   []*Try // the others
	each   Each   // the reply, until the epoch is learnt
	strays []int
	of     int // which try was judged last
}

// Step takes an event in, and returns what is to be done next.
func (a *AllOrNone) Step(ev Event) Action {
	act := a.step(ev)
	act.Of = a.of
	if act.Do != DoEnd || len(a.strays) == 0 {
		return act
	}
	act.Strays, act.Twice = a.strays, len(a.Ask.Then) > 0
	return act
}

func (a *AllOrNone) step(ev Event) Action {
	switch {
	case a.phase == Idle && ev.Kind == BeginTake:
		return a.send(Taking, a.all().Build())
	case a.phase == Taking && ev.Kind == Replied:
		return a.taken(ev)
	case a.phase == Learning && ev.Kind == Learnt:
		return a.judge(ev.Epoch)
	}
	act := a.Acquisition.Step(ev)
	if a.phase == Confirming && act.Do == DoSend {
		confirm := a.confirmation()
		confirm.With = a.With
		act.Request = confirm.Build()
	}
	return act
}

func (a *AllOrNone) all() TakeAll { return append(TakeAll{&a.Try}, a.With...) }

func (a *AllOrNone) taken(ev Event) Action {
	a.each = a.all().Judge(ev.Reply)
	if a.each.Rev > 0 {
		return a.won(a.each.Rev)
	}
	a.strays = a.each.Stray
	return a.learn(Stands{Seen: Seen{EpochKey: a.each.Epoch, Rev: a.each.At}})
}

// judge finds the first key that could not be taken.
func (a *AllOrNone) judge(epoch *txn.Epoch) Action {
	for i, t := range a.all() {
		verdict, err := t.Judge(a.each.Seen[i], epoch)
		switch {
		case err != nil:
			return a.end(AnswerFailed, Action{Err: err})
		case verdict.Outcome == OtherEpoch:
			return a.end(AnswerAgain, Action{})
		case verdict.Outcome == HeldByOther:
			a.of = i
			return a.heldBy(verdict.Own, verdict.Waiting)
		case verdict.Outcome == BehindLine:
			a.of = i
			return a.end(AnswerBehind, Action{Waiting: verdict.Waiting})
		}
	}
	if len(a.Ask.If) > 0 {
		return a.end(AnswerUnmet, Action{})
	}
	return a.end(AnswerAgain, Action{})
}
