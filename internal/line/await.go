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

// await returns when the attempt was handed the key, when what it waits for has
// changed, or when either may have been missed. An error means that the waiting is
// over.
//
// Events are hints. Each verified renewal of the attempt's session also compares the
// awaited key with etcd (see term.Terms.Verify). So an event that never arrives costs at
// most one renewal interval.
func (l *Line) await(ctx context.Context, a *acquire.Attempt, p protocol.Position, news *waiter) error {
	defer l.Waiters.await(news, awaitedKey(a, p))()
	defer news.shortcut.Begin(p, a.Epoch.Value)()
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
		select {
		case kv := <-news.notices:
			if l.readNotice(a, kv) {
				return nil
			}
		case <-news.ask:
			return nil
		case <-news.share:
			if l.mayShare(a) {
				return nil
			}
		case <-news.shortcut.News():
			if a.Over = news.shortcut.Opens(); a.Over != nil {
				return nil
			}
		case <-patience.C:
			if p.Pred == nil && p.Behind {
				return nil // to read which place that is
			}
			if p.Pred != nil && a.Call.Grantable() && !p.Unnoticed {
				select {
				case l.Watches.places <- struct{}{}:
					defer func() { <-l.Watches.places }()
				default:
					continue
				}
			}
			turn = l.Watches.creations
		case turn <- struct{}{}:
			turn = nil
			l.watchAwaited(watching, a, p, begun)
		case before = <-begun:
		case resp, ok := <-before:
			if !ok || resp.Err() != nil {
				// Compacted, without leader, or refused: ask, but not at once,
				// as the reason may last.
				if !retry.PauseUnless(ctx, a.S.Dead(), 3) {
					return claimerr.ErrSession
				}
				return nil
			}
			for _, ev := range resp.Events {
				if heard(a, ev) {
					return nil
				}
				news.shortcut.Saw(ev)
			}
		case <-a.S.Dead():
			return claimerr.ErrSession
		case <-ctx.Done():
			return txn.ContextError(ctx)
		}
	}
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
