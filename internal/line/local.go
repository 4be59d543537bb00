package line

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/localline"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// attemptOf returns the attempt of a local waiter.
func attemptOf(f *term.LocalWaiter) *acquire.Attempt {
	return f.Attempt.(*acquire.Attempt) //nolint:forcetypeassert // no other attempts wait
}

// lossOf is the error of an attempt whose session was lost before it had the key.
func lossOf(a *acquire.Attempt) error { return a.S.LossOf(fencing.Token{Key: a.User}) }

// joinLocal makes the acquisition a local waiter of this client's own term, if there is
// one and all that it wants is the key. A slot has a line of its own.
func (l *Line) joinLocal(s *lease.Session, key string, o *acquire.Call) *term.LocalWaiter {
	t := l.Keys.Term(key)
	if t == nil || t.Session() != s || t.Put != nil || t.Mode.Keys().Record || !mayWaitLocally(s, o) {
		return nil
	}
	return l.newLocalWaiter(s, key, o, func(f *term.LocalWaiter) bool { return l.Local.Join(t.Queue(), f) })
}

// rejoinLocal returns a new local waiter in place of one that was sent to the line. It waits
// in the same queue as the one before it, or in that of this client's own term if no other
// goes before it. Without such a queue it is nil.
func (l *Line) rejoinLocal(f *term.LocalWaiter) *term.LocalWaiter {
	a := attemptOf(f)
	if f.Before == nil {
		return l.joinLocal(a.S, a.User, a.Call)
	}
	return l.newLocalWaiter(a.S, a.User, a.Call, func(next *term.LocalWaiter) bool { return l.Local.JoinBehind(f.Before, next) })
}

// newLocalWaiter returns a local waiter, or nil if join finds no queue for it.
func (l *Line) newLocalWaiter(s *lease.Session, key string, o *acquire.Call, join func(*term.LocalWaiter) bool) *term.LocalWaiter {
	f := localline.NewWaiter[term.Next, *term.Term](l.New(s, o.Mode, o))
	if !join(f) {
		attemptOf(f).End()
		return nil
	}
	return f
}

// mayWaitLocally reports whether the acquisition wants nothing but the key, which has no record.
func mayWaitLocally(s *lease.Session, o *acquire.Call) bool {
	return o.Grantable() && !s.Manual() && !o.Reentrant && !o.Supersede && !o.Prefers && !o.Mode.Keys().Record
}

// awaitLocal waits until the local waiter has a term, or with neither that nor an
// error goes the usual way.
func (l *Line) awaitLocal(ctx context.Context, f *term.LocalWaiter) (*term.Term, error) {
	defer attemptOf(f).End()
	l.Contended.Add(1)
	attemptOf(f).Call.Waits()
	defer l.unlist(l.list(attemptOf(f)))
	defer l.OwnWaits.Watch(ctx, attemptOf(f).User, attemptOf(f).Call.From)()
	again := arrivalAfter
	arrival := time.NewTimer(again)
	defer arrival.Stop()
	for {
		var t *term.Term
		var cause error
		select {
		case t = <-f.Done:
		case <-arrival.C:
			if l.Local.Arrival(f) == 0 {
				l.readArrival(ctx, f)
				again = min(2*again, time.Second)
				arrival.Reset(again) // if that came to nothing, or another asks for all
			}
			continue
		case <-attemptOf(f).S.Dead():
			cause = lossOf(attemptOf(f))
		case <-ctx.Done():
			cause = txn.ContextError(ctx)
		}
		if cause != nil {
			if l.Local.Leave(f) {
				return nil, cause
			}
			if t = <-f.Done; t == nil {
				return nil, cause
			}
		}
		if t == nil && attemptOf(f).S.IsLost() {
			return nil, lossOf(attemptOf(f))
		}
		if t == nil {
			return nil, nil //nolint:nilnil // it goes the usual way
		}
		return l.Confirm(ctx, attemptOf(f), t)
	}
}

// awaitTurn waits until the local waiter before it has its place in line, waits locally again,
// or has left. If it must go on behind another one, before is that one afterwards.
func awaitTurn(ctx context.Context, f *term.LocalWaiter, limit <-chan time.Time) error {
	if f.Before == nil {
		return nil
	}
	select {
	case <-f.Before.Placed:
		f.Before = f.Before.Again
		return nil
	case <-limit:
		return nil
	case <-attemptOf(f).S.Dead():
		return lossOf(attemptOf(f))
	case <-ctx.Done():
		return txn.ContextError(ctx)
	}
}

// waitLocally waits behind one after the other of this client's own claims on the key.
// With neither a term nor an error the acquisition must join the line in etcd. Then, or
// when it has ended otherwise, the caller calls placed, which lets the next one go on.
func (l *Line) waitLocally(ctx context.Context, f *term.LocalWaiter) (t *term.Term, placed func(), err error) {
	s, key := attemptOf(f).S, attemptOf(f).User
	for {
		placed = sync.OnceFunc(func() { close(f.Placed) })
		t, err := l.awaitLocal(ctx, f)
		var next *term.LocalWaiter
		if t == nil && err == nil {
			next, err = l.goOn(ctx, f)
		}
		if next == nil {
			f.Again = f.Before // which has no place yet if this one leaves before its turn
			return t, placed, l.localWaitError(ctx, s, key, err)
		}
		f.Again = next
		placed()
		f = next
	}
}

// goOn waits for the turn of a local waiter that was sent to the line. It returns the one that
// now waits in its place for another claim of this client. With neither that nor an error
// the caller must join the line in etcd.
func (l *Line) goOn(ctx context.Context, f *term.LocalWaiter) (next *term.LocalWaiter, err error) {
	var limit <-chan time.Time
	for pause := arrivalAfter; ; pause = min(2*pause, time.Second) {
		if err := awaitTurn(ctx, f, limit); err != nil || f.Last && f.Before == nil {
			return nil, err
		}
		if f.Last {
			continue // the one before it has left, before it had a place
		}
		if next := l.rejoinLocal(f); next != nil || f.Before == nil {
			return next, nil
		}
		limit = time.After(pause) // the one before it is on its way itself
	}
}

// arrivalAfter is how long a local waiter without an arrival waits for the reply to
// another request before it asks etcd itself.
const arrivalAfter = 2 * time.Millisecond

// readArrival asks etcd for the arrival of the local waiters that there are now. If a
// waiter of another client is in line already, they join the line behind it.
func (l *Line) readArrival(ctx context.Context, f *term.LocalWaiter) {
	t := l.Keys.Term(attemptOf(f).User)
	if t == nil {
		return
	}
	there, ok := l.Local.BeginReading(t.Queue())
	if !ok {
		return
	}
	defer l.Local.EndReading(t.Queue())
	line := l.Store.Layout.Waiting(attemptOf(f).User)
	resp, err := l.Store.ReadAll(ctx, clientv3.OpGet(line, clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	if err != nil {
		return // without an arrival it gives way
	}
	own := l.Waiters.placed()
	foreign := func(kv *mvccpb.KeyValue) bool { return !own[string(kv.Key)] }
	if !slices.ContainsFunc(txn.Kvs(resp, 0), foreign) {
		l.Local.RecordArrival(there, resp.Header.Revision)
		return
	}
	l.Local.GiveWay(t.Queue(), there)
}
