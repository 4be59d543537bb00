package line

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// patience is how long a waiter waits for a handoff notice before it watches a key.
// The first in line watches the claim, whose end no other waiter may notice. The
// others watch the place before their own, which is seldom necessary.
func patience(first bool) time.Duration {
	if first {
		return 200 * time.Millisecond
	}
	return 600*time.Millisecond + rand.N(300*time.Millisecond)
}

// awaitedKey is what must change before the attempt can get any further: the place
// before its own, or the claim if no place is before it.
func awaitedKey(a *acquire.Attempt, p protocol.Position) protocol.Wait {
	switch {
	case p.Pred != nil:
		return protocol.Wait{Key: string(p.Pred.Key), Rev: p.Pred.ModRevision}
	case a.Mode.Keys().First != "": // any of the claims from there on, and their record
		return protocol.Wait{Key: a.Own(a.User), Rev: everyRenewal}
	case p.Readers: // all of the shared claims
		return protocol.Wait{Key: string(p.Own.Key), Rev: everyRenewal}
	case p.Own != nil:
		return protocol.Wait{Key: string(p.Own.Key), Rev: p.Own.ModRevision}
	}
	return protocol.Wait{Key: a.Own(a.User)}
}

// Await is described at acquire.InLine. It steps the attempt when it was handed the key, when what it waits for has
// changed, or when either may have been missed.
//
// Events are hints. Each verified renewal of the attempt's session also compares the
// awaited key with etcd (see term.Terms.Verify). So an event that never arrives costs at
// most one renewal interval.
func (w *inLine) Await(ctx context.Context, p protocol.Position) protocol.Action {
	a, listed := w.a, w.listed
	if a.Put != nil {
		a.Call.Beside.Saw(p.Own)
	}
	if w.mayShare(a) {
		return w.hears(protocol.Event{Kind: protocol.Woken})
	}
	defer w.Waiters.await(listed, awaitedKey(a, p))()
	defer listed.shortcut.Begin(p, a.Epoch.Value)()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	begun := make(chan clientv3.WatchChan, 1)
	var before clientv3.WatchChan
	patience := time.NewTimer(patience(p.Pred == nil && !p.Behind))
	defer patience.Stop()
	if !a.Call.Grantable() || p.Readers || p.Unnoticed {
		patience.Reset(0)
	}
	var turn chan<- struct{} // to create the watch
	for {
		var act protocol.Action
		select {
		case kv := <-listed.notices:
			if act = a.Step(protocol.Event{Kind: protocol.Noticed, KV: kv}); act.Do == protocol.DoStay {
				w.Log.Warn("handoff notice cannot be read", zap.ByteString("notice", kv.Key), zap.Error(act.Err))
			}
		case <-listed.ask:
			act = w.hears(protocol.Event{Kind: protocol.Woken})
		case <-listed.share:
			if w.mayShare(a) {
				act = w.hears(protocol.Event{Kind: protocol.Woken})
			}
		case <-listed.shortcut.News():
			if over := listed.shortcut.Opens(); over != nil {
				act = w.hears(protocol.Event{Kind: protocol.Opened, Over: over})
			}
		case <-patience.C:
			switch {
			case p.Pred == nil && p.Behind:
				act = w.hears(protocol.Event{Kind: protocol.Woken}) // to read which place that is
			case p.Pred == nil || !a.Call.Grantable() || p.Unnoticed:
				turn = w.Watches.creations
			default:
				select {
				case w.Watches.places <- struct{}{}:
					defer func() { <-w.Watches.places }()
					turn = w.Watches.creations
				default:
				}
			}
		case turn <- struct{}{}:
			turn = nil
			w.watchAwaited(watching, a, p, begun)
		case before = <-begun:
		case resp, ok := <-before:
			act = w.sees(ctx, resp, ok)
		case <-a.S.Dead():
			act = a.Step(protocol.Event{Kind: protocol.SessionEnded, Err: claimerr.ErrSession})
		case <-ctx.Done():
			act = a.Step(protocol.Event{Kind: protocol.TimeUp, Err: txn.ContextError(ctx)})
		}
		if act.Do != protocol.DoStay {
			return act
		}
	}
}

// hears steps the attempt by a hint that it may get further.
func (w *inLine) hears(ev protocol.Event) protocol.Action {
	ev.Shares = w.mayShare(w.a)
	return w.a.Step(ev)
}

// sees steps the attempt by what has come from its watch.
func (w *inLine) sees(ctx context.Context, resp clientv3.WatchResponse, ok bool) protocol.Action {
	if !ok || resp.Err() != nil {
		// Compacted, without leader, or refused: ask, but not at once,
		// as the reason may last.
		if !retry.PauseUnless(ctx, w.a.S.Dead(), 3) {
			return w.a.Step(w.a.Cut(ctx, nil))
		}
		return w.hears(protocol.Event{Kind: protocol.Woken})
	}
	for _, ev := range resp.Events {
		act := w.hears(protocol.Event{Kind: protocol.Heard, KV: ev.Kv, Deleted: ev.Type == clientv3.EventTypeDelete})
		if act.Do != protocol.DoStay {
			return act
		}
		w.listed.shortcut.Saw(ev)
	}
	return protocol.Action{}
}

// watchAwaited begins to watch what must change before the attempt can get any further. It
// does so on a goroutine of its own: a member that hangs must not keep the waiter from its
// notices while the watch is being created.
func (l *Line) watchAwaited(ctx context.Context, a *acquire.Attempt, p protocol.Position, begun chan<- clientv3.WatchChan) {
	key, opts := awaitedKey(a, p).Key, []clientv3.OpOption{clientv3.WithRev(p.Rev + 1)}
	if end := a.Mode.Keys().End; end != "" && p.Pred == nil {
		opts = append(opts, clientv3.WithRange(end))
	}
	if p.Readers && p.Pred == nil {
		opts = append(opts, clientv3.WithRange(a.SharersEnd(a.User)))
	}
	go func() {
		defer func() { <-l.Watches.creations }()
		w, _, _ := l.Watches.Begin(ctx, key, opts...)
		begun <- w
	}()
}
