package line

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/ownwait"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/store"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Line is where the callers of a client wait. Its methods are safe for concurrent use.
type Line struct {
	*acquire.Acquirer
	Waiters  *Waiters
	Watches  *Watches
	OwnWaits *ownwait.Watcher
	Etcd     *clientv3.Client
	// Shortcut returns the shortcut of an attempt.
	Shortcut func(a *acquire.Attempt) Shortcut
}

// Acquire acquires the key, in line where it is held.
func (l *Line) Acquire(ctx context.Context, key string, o *acquire.Call) (*term.Term, error) {
	l.Attempts.Add(1)
	defer l.Outage.Await(key)()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.Life.Open, func() { cancel(claimerr.ErrClosed) })()
	if err := l.awaitTurn(ctx, key, o); err != nil {
		return nil, l.explained(ctx, o, err)
	}
	t, err := l.Loop(ctx, key, o, func(ctx context.Context) acquire.Result { return l.Alone(ctx, key, o, l.waitOn) })
	return t, l.explained(ctx, o, err)
}

// explained is the error of a call that waited.
func (l *Line) explained(ctx context.Context, o *acquire.Call, err error) error {
	if cause := txn.ContextError(ctx); err != nil && cause != nil && goesOn(err, o) {
		return l.Life.Explain(fmt.Errorf("the session was lost, and there is no new one yet: %w", txn.Explain(l.Etcd, cause)))
	}
	return err
}

// awaitTurn waits until a call with a key beside its claim may ask for the key.
func (l *Line) awaitTurn(ctx context.Context, key string, o *acquire.Call) error {
	if o.Beside == nil {
		return nil
	}
	var end func()
	err := o.Beside.Turn(ctx, func() {
		o.Waits()
		end = l.OwnWaits.Watch(ctx, key, o.From)
	})
	if end != nil {
		end()
		if err != nil {
			l.Contended.Add(1)
		}
	}
	return err
}

// waitOn is waitOnce. If the session that it waited with is lost, or the outcome stays
// unknown, it undoes that attempt and makes another, at the end of the line. With
// operations of the caller it does not, because they are not undone.
func (l *Line) waitOn(ctx context.Context, s *lease.Session, key string, o *acquire.Call) acquire.Result {
	r := l.waitOnce(ctx, s, key, o)
	if r.Term != nil || r.Next != acquire.Stop || r.Err == nil || txn.ContextError(ctx) != nil {
		return r
	}
	if len(o.Then) > 0 || !isOpen(r.Err) {
		if goesOn(r.Err, o) {
			r.Next = acquire.Later
		}
		return r
	}
	if o.Beside != nil {
		if cause := o.Beside.Undone(ctx); cause != nil {
			return acquire.Result{Err: fmt.Errorf("%w (%w)", r.Err, cause)}
		}
	}
	r.Next = acquire.Later
	return r
}

// goesOn reports whether a waiter that has lost its session may wait with another.
// It may not if another session would be lost, too. Nor may it if it had the key
// already: its operations would be carried out once more.
func goesOn(err error, o *acquire.Call) bool {
	if !errors.Is(err, claimerr.ErrSession) || errors.Is(err, txn.ErrPermissionDenied) ||
		errors.Is(err, store.ErrRewound) || errors.Is(err, txn.ErrUnknown) {
		return false
	}
	return len(o.Then) == 0 || claimerr.WasAttempt(err)
}

// isOpen reports whether the outcome of an attempt is unknown for a reason that may pass.
func isOpen(err error) bool {
	return errors.Is(err, txn.ErrUnknown) && !errors.Is(err, txn.ErrPermissionDenied) && claimerr.IsPassing(txn.Failed(err))
}

// waitOnce waits behind this client's own claims on the key. Then it takes the key if
// it is free, or a place in line, and waits there.
func (l *Line) waitOnce(ctx context.Context, s *lease.Session, key string, o *acquire.Call) acquire.Result {
	f, known := l.joinLocal(s, key, o), func() {}
	if f == nil && mayWaitLocally(s, o) {
		known = l.Local.AskInTurn(ctx, s.Dead(), key)
		defer known()
		if f = l.joinLocal(s, key, o); f != nil {
			known()
		}
	}
	if o.Mode.Keys().Record {
		known = l.knowRecord(ctx, s, &o.Mode)
		defer known()
	}
	if f == nil && (!l.Keys.Contended(key) || o.Supersede && o.Beside != nil && l.Keys.Term(key) != nil) {
		// Most keys are free: to take one needs no watch.
		r := l.TryOnce(ctx, s, key, o)
		if !errors.Is(r.Err, claimerr.ErrHeld) {
			return r
		}
		l.Keys.SetContended(key, true)
		if f = l.joinLocal(s, key, o); f != nil {
			known()
		}
	}
	if f == nil {
		return l.waitInLine(ctx, l.New(s, o.Mode, o), func() {
			known()
			l.Contended.Add(1)
		})
	}
	t, placed, err := l.waitLocally(ctx, f)
	defer placed()
	if t != nil || err != nil {
		return acquire.Result{Term: t, Err: err}
	}
	return l.waitInLine(ctx, l.New(s, o.Mode, o), placed)
}

// knowRecord learns the record of a shared key from other callers of the client. Callers
// that would all put the record do so one after the other, until one is known to have put
// it. The others then share round trips. The caller calls known when it has its answer.
func (l *Line) knowRecord(ctx context.Context, s *lease.Session, m *protocol.Mode) (known func()) {
	if _, ok := (*m).(protocol.Shared); !ok {
		return func() {}
	}
	if *m = l.Knowing(*m); (*m).Keys().Joins {
		return func() {}
	}
	known = l.Local.AskInTurn(ctx, s.Dead(), protocol.SharedKey((*m).Keys().User, ""))
	if *m = l.Knowing(*m); (*m).Keys().Joins {
		known()
	}
	return known
}

// waitError returns why a wait ended early, with the holder of the key.
func (l *Line) waitError(ctx context.Context, a *acquire.Attempt, p protocol.Position, err error) error {
	if txn.ContextError(ctx) != nil {
		return l.waited(ctx, a.S, func(cause error) error { return l.Errors.Waited(a.HolderOf(p.Own), cause) })
	}
	if a.S.Ended() {
		return lossOf(a)
	}
	return err
}

// localWaitError is waitError for a wait behind a claim of the same client.
func (l *Line) localWaitError(ctx context.Context, s *lease.Session, key string, err error) error {
	if err == nil || txn.ContextError(ctx) == nil || errors.Is(err, claimerr.ErrLost) {
		return err
	}
	return l.waited(ctx, s, func(cause error) error { return l.Errors.WaitedBehind(key, l.Keys.Term(key), cause) })
}

// waited returns the error of a wait whose context has ended. The session shows whether
// etcd has answered lately.
func (l *Line) waited(ctx context.Context, s *lease.Session, waited func(cause error) error) error {
	cause := txn.ContextError(ctx)
	if errors.Is(cause, claimerr.ErrClosed) {
		return cause
	}
	if silent := s.Silence(); silent > 0 {
		cause = l.Outage.Explain(fmt.Errorf("etcd has not answered for %v: %w", silent.Round(time.Second), txn.Explain(l.Etcd, cause)))
	}
	return waited(cause)
}
