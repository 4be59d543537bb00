package queue

import (
	"context"
	"errors"
	"iter"

	"github.com/etcdclaims/claims/internal/feed"
	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Watch yields the changes of the queue from now on, without payloads. The first value is
// EventSynced. To learn of earlier items, call Waiting, Taken and DeadLetters after
// that. Watch ends when ctx ends, the queue is closed, or the loop is left.
//
// Events of one item come in their order. Watch survives disconnections without missing
// events. If etcd has compacted events meanwhile, Watch yields EventResynced. It also
// does so if the consumer is more than 4,096 changes behind. An error is the last value.
// Only errors that retrying cannot change are yielded, such as a missing permission.
//
// Watch does not compare its events with the state of etcd. If etcd, or a proxy before
// it, omits events from a watch without ending it, Watch does not notice. A consumer that
// must not miss a change reads Waiting, Taken and DeadLetters again now and then.
//
// Watch is for observers. Its events arrive late, so never treat one as a claim. A
// repeated Heartbeat yields no event, nor does a lease that moves to another process.
func (q *Queue) Watch(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(q.ctx, cancel)()
		w := &watch{q: q, yield: yield}
		for try := 0; ; try++ {
			if w.next == 0 && !w.sync(ctx) {
				if w.over || !retry.Pause(ctx, try) {
					return
				}
				continue
			}
			if w.follow(ctx) {
				try = 0
			}
			if w.over || !retry.Pause(ctx, try) {
				return
			}
		}
	}
}

// watch is the state of one Watch.
type watch struct {
	q     *Queue
	yield func(Event, error) bool
	next  int64 // the revision from which on events are yielded; 0: not known yet
	begun bool
	over  bool // the caller left the loop, or nothing more can come
}

func (w *watch) tell(e Event) bool {
	if !w.over && !w.yield(e, nil) {
		w.over = true
	}
	return !w.over
}

// sync finds out from where to watch, and yields that.
func (w *watch) sync(ctx context.Context) bool {
	from, end := w.q.keys.Events()
	resp, err := w.q.read(ctx, clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithKeysOnly()))
	switch {
	case ctx.Err() != nil:
		w.over = true
		return false
	case err != nil && passing(err):
		return false
	case err != nil:
		w.over = true
		w.yield(Event{}, w.q.fail("watch", err))
		return false
	}
	kind := EventSynced
	if w.begun {
		kind = EventResynced
	}
	w.begun, w.next = true, resp.Header.Revision+1
	return w.tell(Event{Kind: kind, Revision: resp.Header.Revision})
}

// follow yields events until the watch ends, and reports whether there were any.
func (w *watch) follow(ctx context.Context) (progress bool) {
	from, end := w.q.keys.Events()
	news, stop := w.q.openWatch(ctx, from, clientv3.WithRange(end), clientv3.WithRev(w.next), clientv3.WithPrevKV())
	defer stop()
	f := feed.From(news, stop)
	for {
		<-f.Ready() // it ends with ctx
		resps, ended, behind := f.Take()
		for _, resp := range resps {
			if err := resp.Err(); err != nil {
				if errors.Is(err, rpctypes.ErrCompacted) || !passing(err) {
					w.next = 0 // a missing permission shows when it reads
				}
				w.q.log.Debug("watch interrupted", zap.Error(err))
				return progress
			}
			if !w.apply(resp.Events) {
				return progress
			}
			progress = true
		}
		if behind {
			w.q.log.Warn("watch consumer too slow; changes are left out", zap.Int("backlog", feed.Backlog))
			w.next = 0
		}
		if ended {
			return progress
		}
	}
}

// apply yields the events of complete revisions. It returns false if the caller left the
// loop.
func (w *watch) apply(events []*clientv3.Event) bool {
	for len(events) > 0 {
		rev, n := events[0].Kv.ModRevision, 1
		for n < len(events) && events[n].Kv.ModRevision == rev {
			n++
		}
		for _, e := range w.q.eventsOf(events[:n]) {
			if !w.tell(e) {
				return false
			}
		}
		events, w.next = events[n:], rev+1
	}
	return true
}
