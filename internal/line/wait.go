package line

import (
	"context"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// list lists an attempt that may be handed the key, until unlist.
func (l *Line) list(a *acquire.Attempt) *waiter {
	w := &waiter{
		a: a, in: l.Waiters, since: l.Store.Seen(), notices: make(chan *mvccpb.KeyValue, 1),
		ask: make(chan struct{}, 1), share: make(chan struct{}, 1), shortcut: l.Shortcut(a), turnOver: func() {},
		local: term.Queue{Closed: a.Call.Prefers},
	}
	l.Waiters.add(w)
	return w
}

// unlist removes a waiter from the list. Who waits behind it in this client
// joins the line in etcd.
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
	a.Enqueues = true
	news := l.list(a)
	defer l.unlist(news)
	defer func() {
		if r.Term != nil && r.Term.ID == a.ID {
			l.Local.Inherit(&news.local, r.Term.Queue())
		}
	}()
	got := l.takePlace(ctx, a)
	if got.rev == 0 && got.place == nil {
		return got.Result
	}
	if got.place != nil {
		placed()
		a.Call.Waits()
		a.Supersede(nil) // in line like any caller, whatever becomes of that term
		if got.rev > 0 {
			l.leave(a)
		}
	}
	if got.rev > 0 {
		return l.Grant(ctx, a, got.rev)
	}
	if a.S.Manual() {
		defer a.S.Hold()()
	}
	if r = l.inLine(ctx, a, *got.place, news); r.Term == nil {
		a.Undo()
	}
	return r
}

// mayShare reports whether an attempt in line can get a claim of its own client instead.
func (l *Line) mayShare(a *acquire.Attempt) bool {
	return a.Call.Reentrant && a.HandedAt == 0 && l.Shareable(a.User)
}

// inLine waits until the attempt gets the key.
func (l *Line) inLine(ctx context.Context, a *acquire.Attempt, p protocol.Position, news *waiter) acquire.Result {
	defer func() { news.turnOver() }()
	defer news.shortcut.Leave()
	defer l.OwnWaits.Watch(ctx, a.User, a.Call.From)()
	if a.Put != nil {
		a.Call.Beside.InLine(news.doubt)
	}
	failed := func(p protocol.Position, err error) acquire.Result {
		return acquire.Result{Err: l.waitError(ctx, a, p, err)}
	}
	for try := 0; ; try++ {
		a.Over = nil
		if l.mayShare(a) {
			return acquire.Result{Next: acquire.Retry} // the line would end when this client releases the key
		}
		var err error
		if p.Readers {
			if p, err = l.withoutShared(ctx, a, p); err != nil {
				return failed(p, err)
			}
		}
		if p.Pred != nil || p.Own != nil || p.Behind {
			if a.Put != nil {
				a.Call.Beside.Saw(p.Own)
			}
			if err := l.await(ctx, a, p, news); err != nil {
				return failed(p, err)
			}
			if try = 0; l.mayShare(a) {
				return acquire.Result{Next: acquire.Retry} // before the claim ends, which a request may outlast
			}
		} else if try > 0 && !p.Next && !retry.PauseUnless(ctx, a.S.Dead(), try-1) {
			return failed(p, claimerr.ErrSession)
		}
		if a.HandedAt > 0 {
			return l.Grant(ctx, a, a.HandedAt)
		}
		if again, err := prepareBeside(ctx, a, try); err != nil {
			return failed(p, err)
		} else if again {
			p = protocol.Position{}
			continue
		}
		next, done := l.advance(ctx, a, p, news)
		if done != nil {
			return *done
		}
		p = next
	}
}

// advance takes the key if it is the attempt's turn, and else returns its position in line.
func (l *Line) advance(ctx context.Context, a *acquire.Attempt, p protocol.Position, news *waiter) (protocol.Position, *acquire.Result) {
	ended := func(r acquire.Result) (protocol.Position, *acquire.Result) { return p, &r }
	resp, rev, err := l.sendAdvance(ctx, a, news)
	switch {
	case err == nil && resp == nil && rev > 0:
		news.shortcut.Took(a.Over, a.Epoch.Fence(rev))
		return ended(l.Grant(ctx, a, rev))
	case err == nil && resp == nil:
		return ended(acquire.Result{Next: acquire.Retry}) // made void, and the place with it
	case err == nil && resp.Succeeded:
		news.shortcut.Took(a.Over, a.Epoch.Fence(resp.Header.Revision))
		a.Behind = protocol.Unread
		a.Granted(resp.Header.Revision)
		return ended(l.Grant(ctx, a, resp.Header.Revision))
	case err != nil && a.S.Gone(ctx, err, a.NamesLeases()):
		return ended(acquire.Result{Err: lossOf(a)})
	case err != nil && (news.shortcut.Failed(a.Over, err) || txn.IsTransient(err) || a.LeaseGone(ctx, err)):
		return protocol.Position{}, nil // unknown: ask again
	case isUnknown(err) && (len(a.Call.Then) > 0 || txn.ContextError(ctx) != nil):
		return ended(acquire.Result{Err: txn.WithCause(ctx, err)})
	case err != nil:
		return ended(acquire.Result{Err: l.waitError(ctx, a, p, err)})
	}
	next, lost, err := l.see(a, resp)
	switch {
	case err != nil:
		return ended(acquire.Result{Err: err})
	case lost:
		return ended(gone(ctx, a))
	}
	return next, nil
}

// sendAdvance sends an advance, in turn if it puts the record of a shared key.
func (l *Line) sendAdvance(ctx context.Context, a *acquire.Attempt, news *waiter) (resp *clientv3.TxnResponse, rev int64, err error) {
	news.turnOver = l.knowRecord(ctx, a.S, &a.Mode)
	resp, rev, err = a.Send(ctx, protocol.Advance{Try: &a.Try}.Build())
	if rev == 0 && (err != nil || resp == nil || !resp.Succeeded) {
		news.turnOver()
	}
	return resp, rev, err
}
