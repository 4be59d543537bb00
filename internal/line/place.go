package line

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// selfServing is the value of a place that shows a releaser that it must not hand over.
func (l *Line) selfServing(a *acquire.Attempt) string {
	return protocol.Holder{
		Claim: a.ID, Owner: l.Owner, Instance: l.Store.Layout.Instance, Since: keyspace.TimeText(a.AskedAt()), Kind: protocol.KindSelf,
	}.Encode()
}

// taken is what an attempt has after it asked for the key or a place: either the key, since a revision, or a place
// in line, or both, if its request was carried out twice; or neither, and a result.
type taken struct {
	rev   int64
	place *protocol.Position
	acquire.Result
}

// takePlace takes the key if it is free, and else a place at the end of the line.
func (l *Line) takePlace(ctx context.Context, a *acquire.Attempt) taken {
	if a.PlaceValue = a.Value; !a.Call.Grantable() {
		a.PlaceValue = l.selfServing(a)
	}
	step := protocol.Join{Try: &a.Try}
	resp, rev, err := a.Send(ctx, step.Build())
	switch {
	case err != nil:
		return taken{Result: acquire.RetryIf(a.LeaseGone(ctx, err) || txn.IsTransient(err), err)}
	case resp == nil && rev == 0:
		return taken{Result: acquire.Result{Next: acquire.Retry}}
	case resp == nil:
		if a.Mode.Keys().First != "" {
			l.leave(a) // the lost request may have been carried out twice
		}
		return taken{rev: rev}
	}
	joined, err := step.Judge((*pb.TxnResponse)(resp))
	a.Learnt()
	switch {
	case err != nil:
		a.Undo()
		return taken{Result: acquire.Result{Err: err}}
	case joined.Old:
		// Not even a place was taken: the epoch is another.
		err := l.Store.LearnEpoch(joined.Epoch, joined.At)
		return taken{Result: acquire.RetryIf(err == nil, err)}
	case joined.Rev > 0 && !joined.Twice:
		l.Keys.SetContended(a.User, false)
		return taken{rev: joined.Rev}
	}
	return taken{rev: joined.Rev, place: &joined.Position}
}

// leave deletes the place of an attempt whose request was carried out twice, so
// that it has joined the line behind itself. What was handed to that place is given up.
func (l *Line) leave(a *acquire.Attempt) {
	a = a.Copied()
	a.S.CleanUp("leaving the line", func(ctx context.Context) error {
		resp, err := l.Store.Do(ctx, protocol.Leave{Try: &a.Try}.Build())
		if err == nil {
			err = a.DropElsewhere(ctx, resp)
		}
		return err
	})
}

// gone is the result of an attempt without its place: an operator
// deleted the place, or the lease ended, and then the session knows.
func gone(ctx context.Context, a *acquire.Attempt) acquire.Result {
	if !a.S.Lives(ctx) {
		return acquire.Result{Err: lossOf(a)}
	}
	return acquire.Result{Next: acquire.Retry}
}

// see reads from the reply to an advance the attempt's position in line. lost is true
// if its place was removed.
func (l *Line) see(a *acquire.Attempt, resp *clientv3.TxnResponse) (p protocol.Position, lost bool, err error) {
	r := protocol.Advance{Try: &a.Try}.Judge((*pb.TxnResponse)(resp))
	if err := l.Store.LearnEpoch(r.EpochKey, r.Rev); err != nil {
		return p, false, err
	}
	p, rev, at, err := a.Stand(r, l.Store.Epoch())
	a.Learnt()
	switch {
	case err != nil:
		return p, false, err
	case at == protocol.Given:
		a.HandedAt = rev
		a.HandedUnread()
	case at == protocol.Out:
		return p, true, nil
	case at == protocol.Moved:
		a.Describe()
	case p.Own == nil && p.Pred == nil && a.Put != nil && a.Call.Beside.Changed(r.Beside):
		a.Describe()
	case at == protocol.Denied:
		return p, false, fmt.Errorf("%w: acquiring %q", claimerr.ErrRefused, a.User)
	}
	return p, false, nil
}

// heard reports whether an event of the watch may let the attempt continue, or has given
// it the key.
func heard(a *acquire.Attempt, ev *clientv3.Event) bool {
	rev, again := a.Heard(ev.Kv, ev.Type == clientv3.EventTypeDelete)
	a.Learnt()
	if rev > 0 {
		a.HandedAt = rev
		a.HandedUnread() // its notice has not arrived yet
	}
	return again || rev > 0
}

// readNotice reads a releaser's notice: the attempt has the key.
func (l *Line) readNotice(a *acquire.Attempt, kv *mvccpb.KeyValue) bool {
	n, err := protocol.DecodeNotice(kv.Value)
	if err != nil {
		l.Log.Warn("handoff notice cannot be read", zap.ByteString("notice", kv.Key), zap.Error(err))
		return false
	}
	a.Notified(n, kv.ModRevision)
	a.HandedAt, a.Noticed, a.Trace = kv.ModRevision, true, n.Trace
	a.Behind = protocol.Line{Next: n.Next, More: n.More, Known: true}
	return true
}

// withoutShared returns the position of the first in line once the record of a key without
// shared holders is gone, or else the position as it is.
func (l *Line) withoutShared(ctx context.Context, a *acquire.Attempt, p protocol.Position) (protocol.Position, error) {
	n, err := l.ClearShared(ctx, a.User, p.Own)
	switch {
	case err != nil && !claimerr.IsPassing(err):
		return p, txn.Failed(err)
	case err == nil && n == 0:
		return protocol.Position{Next: true}, nil
	}
	return p, nil
}

// prepareBeside prepares the key beside the claim for another request. again is true if that must be
// tried again.
func prepareBeside(ctx context.Context, a *acquire.Attempt, try int) (again bool, err error) {
	if a.Put == nil {
		return false, nil
	}
	if err := a.Call.Beside.Prepare(ctx); err != nil {
		if claimerr.IsPassing(err) && retry.PauseUnless(ctx, a.S.Dead(), try) {
			return true, nil
		}
		return false, err
	}
	a.Describe()
	return false, nil
}

func isUnknown(err error) bool { return errors.Is(err, txn.ErrUnknown) }
