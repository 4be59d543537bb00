package line

import (
	"context"
	"sync"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// list lists an attempt that may be handed the key, until unlist.
func (l *Line) list(a *acquire.Attempt) *waiter {
	w := &waiter{
		a: a, place: a.PlaceKey(), in: l.Waiters, since: l.Store.Seen(), notices: make(chan *mvccpb.KeyValue, 1),
		ask: make(chan struct{}, 1), share: make(chan struct{}, 1), shortcut: l.Shortcut(a),
		local: term.Queue{Closed: a.Call.Prefers},
	}
	l.Waiters.add(w)
	return w
}

// unlist removes a waiter from the list. The callers of this client that wait behind it
// join the line in etcd.
func (l *Line) unlist(w *waiter) {
	l.Waiters.remove(w)
	l.Local.Close(&w.local)
}

// waitInLine takes the key if it is free, or a place at the end of the line, and waits
// there. It calls placed when it has the place.
func (l *Line) waitInLine(ctx context.Context, a *acquire.Attempt, placed func()) (r acquire.Result) {
	defer a.End()
	if a.Call.Supersede {
		a.Supersede(l.Keys.Term(a.User))
	}
	line, epoch := a.Mode.Keys().Line, a.Epoch.Value
	a.Rename(l.Names.Take(line, epoch))
	a.Undone = sync.OnceFunc(func() { l.Names.Give(line, epoch, a.PlaceName()) })
	if a.PlaceValue = a.Value; !a.Call.Grantable() {
		a.PlaceValue = l.selfServing(a)
	}
	listed := l.list(a)
	defer l.unlist(listed)
	defer func() {
		if r.Term != nil && r.Term.ID == a.ID {
			l.Local.Inherit(&listed.local, r.Term.Queue())
		}
	}()
	w := &inLine{Line: l, a: a, listed: listed, placed: placed, leave: func() {}, turnOver: func() {}}
	defer func() {
		w.turnOver()
		w.leave()
	}()
	act := a.Drive(ctx, a, a.Step(protocol.Event{Kind: protocol.BeginJoin}), w)
	switch {
	case act.End != protocol.AnswerWon || a.HandedAt > 0:
	case a.Placed():
		listed.shortcut.Took(a.Over, a.Epoch.Fence(act.Rev))
	default:
		l.Keys.SetContended(a.User, false)
	}
	if r = l.conclude(ctx, a, &act); r.Term != nil && a.Settled() {
		a.Undone() // it left the line as it got the key
	}
	return r
}

// conclude makes of the end of an attempt its result.
func (l *Line) conclude(ctx context.Context, a *acquire.Attempt, act *protocol.Action) acquire.Result {
	r := l.Conclude(ctx, a, act)
	if !a.Placed() {
		return r
	}
	switch end := act.End; {
	case end == protocol.AnswerLostPlace: // an operator deleted it, or the lease has ended, and then the session knows
		if !a.S.Ended() && a.S.Lives(ctx) {
			return acquire.Result{Next: acquire.Retry}
		}
		r.Err = l.waitError(ctx, a, act.Position, lossOf(a))
	case end == protocol.AnswerUnsettled && (len(a.Call.Then) > 0 || txn.ContextError(ctx) != nil):
		r.Err = txn.WithCause(ctx, r.Err)
	case end == protocol.AnswerUnsettled, end == protocol.AnswerStopped, end == protocol.AnswerFailed:
		r.Err = l.waitError(ctx, a, act.Position, r.Err)
	}
	return r
}

// selfServing is the value of a place that shows a releaser that it must not hand over.
func (l *Line) selfServing(a *acquire.Attempt) string {
	return protocol.Holder{
		Claim: a.ID, Owner: l.Owner, Instance: l.Store.Layout.Instance, Since: keyspace.TimeText(a.AskedAt()), Kind: protocol.KindSelf,
	}.Encode()
}

// mayShare reports whether an attempt in line can get a claim of its own client instead: its turn would only
// come after the client has released the key.
func (l *Line) mayShare(a *acquire.Attempt) bool {
	return a.Call.Reentrant && l.Shareable(a.User)
}

// inLine is an attempt that waits in line, as its driver sees it.
type inLine struct {
	*Line
	a        *acquire.Attempt
	listed   *waiter
	placed   func() // called when it has its place, nil afterwards
	leave    func() // ends what began with its place
	turnOver func() // ends its turn to put the record of a shared key
}

// Before is described at acquire.InLine.
func (w *inLine) Before(ctx context.Context, do protocol.Do) {
	if w.placed != nil {
		w.stand(ctx)
	}
	switch do {
	case protocol.DoSend: // in its turn
	case protocol.DoPrepare:
		w.turnOver = w.knowRecord(ctx, w.a.S, &w.a.Mode)
	default:
		w.turnOver()
	}
}

// stand begins what goes on for as long as the attempt is in line.
func (w *inLine) stand(ctx context.Context) {
	w.placed()
	w.placed = nil
	w.Keys.SetContended(w.a.User, true)
	w.a.Call.Waits()
	watched, held := w.OwnWaits.Watch(ctx, w.a.User, w.a.Call.From), func() {}
	if w.a.S.Manual() {
		held = w.a.S.Hold()
	}
	if w.a.Put != nil {
		w.a.Call.Beside.InLine(w.listed.doubt)
	}
	w.leave = func() {
		watched()
		held()
		w.listed.shortcut.Leave()
	}
}

// Barred is described at acquire.InLine.
func (w *inLine) Barred(err error) bool { return w.listed.shortcut.Failed(w.a.Over, err) }
