package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/feed"
	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// EventKind is the kind of an Event.
type EventKind int

// The kinds of events that Watch yields.
const (
	// Claimed means that the key has an owner, which Info describes. It is
	// also yielded for every key that is held when the watch begins.
	Claimed EventKind = iota + 1
	// Freed means that the key has no owner. Only Key and Fence of Info are
	// set; the fence is that of the term that ended.
	Freed
	// Synced means that all keys that were held when the watch began have been
	// yielded.
	Synced
	// Resynced means that events were missed: by compaction, a long
	// disconnection, a lost event or a slow consumer. The difference to the
	// events before follows as Claimed and Freed. Terms that began and ended
	// in between are not yielded.
	Resynced
)

func (k EventKind) String() string {
	switch k {
	case Claimed:
		return "claimed"
	case Freed:
		return "freed"
	case Synced:
		return "synced"
	case Resynced:
		return "resynced"
	}
	return "unknown"
}

// Event is one change of ownership, or a note about the watch itself.
type Event struct {
	Kind     EventKind
	Info     Info  // zero for Synced and Resynced
	Revision int64 // etcd's revision of the change
}

// Watch yields the changes of ownership of the keys that begin with prefix. An
// empty prefix means all keys. It begins with the keys that are held now,
// followed by Synced. It ends when ctx ends, when the client is closed, and when
// the caller leaves the loop.
//
// Watch survives disconnections and compaction, after which it yields
// Resynced. If an error is yielded the iteration ends; retrying would not help.
// A missing permission is such an error.
//
// Watch also compares what it has yielded with etcd, once per renewal interval
// (a third of Config.TTL). Each comparison is one read that scans the watched
// keys. The change of a lost event is yielded, after Resynced, within 1 s and
// one interval. A dead holder's key is therefore Freed within TTL + 1 s and one
// interval.
//
// Up to 4,096 events are buffered for a slow consumer. A consumer that falls
// further behind gets Resynced and the current state instead of each change.
//
// Watch is for observers. Its events arrive late, so never treat one as
// ownership.
func (c *Client) Watch(ctx context.Context, prefix string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := c.refusal(); err != nil {
			yield(Event{}, err)
			return
		}
		if c.Passthrough() {
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(c.open, func() { cancel(ErrClosed) })()
		w := &watch{c: c, prefix: prefix, known: make(map[string]int64), yield: yield}
		for try := 0; ; try++ {
			advanced := c.store.generation.next()
			rev, ok := w.sync(ctx)
			if !ok {
				return
			}
			if rev > 0 && w.follow(ctx, rev, advanced) {
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
	c       *Client
	prefix  string
	known   map[string]int64 // fence of each key that was yielded as claimed
	audited int64            // revision as of which known was right
	begun   bool
	over    bool // the caller broke off, or nothing more can come
	yield   func(Event, error) bool
}

func (w *watch) tell(e Event) bool {
	if !w.over && !w.yield(e, nil) {
		w.over = true
	}
	return !w.over
}

func (w *watch) fail(err error) {
	if !w.over {
		w.over = true
		w.yield(Event{}, errtext.CallOfAll(fmt.Sprintf("watch %q", w.prefix), err))
	}
}

// sync reads all claims and yields the differences from the events so far.
func (w *watch) sync(ctx context.Context) (rev int64, ok bool) {
	own := w.c.store.layout.Own("")
	there := make(map[string]bool)
	for p, err := range w.c.pages(ctx, own+w.prefix, listPage) {
		if err != nil {
			if isPassing(err) || errors.Is(err, ErrRewound) {
				return 0, true // again, after a pause
			}
			if ctx.Err() == nil {
				w.fail(err)
			}
			return 0, false
		}
		if rev == 0 {
			rev = p.Rev // later pages may be younger: follow does not yield their content twice
			if w.begun && !w.tell(Event{Kind: Resynced, Revision: rev}) {
				return 0, false
			}
		}
		for _, kv := range p.Kvs {
			key := strings.TrimPrefix(string(kv.Key), own)
			there[key] = true
			if !w.claimed(key, kv) {
				return 0, false
			}
		}
	}
	for key := range w.known {
		if !there[key] && !w.freed(key, rev) {
			return 0, false
		}
	}
	if !w.begun {
		w.begun = true
		return rev, w.tell(Event{Kind: Synced, Revision: rev})
	}
	return rev, true
}

// claimed yields an owner unless it was yielded before.
func (w *watch) claimed(key string, kv *mvccpb.KeyValue) bool {
	i := w.c.info(key, kv, nil, 0)
	if last, ok := w.known[key]; ok && last == i.Fence {
		return true
	}
	w.known[key] = i.Fence
	return w.tell(Event{Kind: Claimed, Info: i, Revision: kv.ModRevision})
}

func (w *watch) freed(key string, rev int64) bool {
	last, ok := w.known[key]
	if !ok {
		return true
	}
	delete(w.known, key)
	return w.tell(Event{Kind: Freed, Info: Info{Key: key, Fence: last}, Revision: rev})
}

// follow yields the events after the revision until the watch ends. progress reports
// whether there was one.
func (w *watch) follow(ctx context.Context, rev int64, advanced <-chan struct{}) (progress bool) {
	own := w.c.store.layout.Own("")
	w.audited = rev
	var news clientv3.WatchChan
	var stop context.CancelFunc
	for try := 0; ; try++ { // to begin again misses nothing
		var begun bool
		if news, stop, begun = w.c.beginWatch(ctx, own+w.prefix, clientv3.WithPrefix(), clientv3.WithRev(rev+1)); begun {
			break
		}
		stop()
		if a := w.audit(ctx); a != nil && w.missed(a) || !retry.Pause(ctx, try) {
			return false
		}
	}
	defer stop()
	f := feed.From(news, stop)
	pulse := time.NewTicker(w.c.cfg.timing(seconds(w.c.cfg.TTL)).renew)
	defer pulse.Stop()
	var open *audit // events from before it may be on their way
	settle := time.NewTimer(time.Hour)
	defer settle.Stop()
	for {
		select {
		case <-f.Ready():
		case <-advanced: // revisions may be others now, or the stream hangs
			return progress
		case <-settle.C:
			if open != nil && w.missed(open) {
				return w.gap(progress)
			}
			open = nil
			continue
		case <-pulse.C:
			if open == nil {
				if open = w.audit(ctx); open != nil && !w.missed(open) {
					open = nil
				}
				settle.Reset(auditGrace)
			}
			continue
		}
		settle.Reset(auditGrace) // a watch that still delivers is late, not deaf
		resps, ended, behind := f.Take()
		for _, resp := range resps {
			if err := resp.Err(); err != nil {
				// Compaction, a lost leader and the like are mended by reading
				// again; a missing permission is not, and shows there.
				w.c.log.Debug("watch interrupted", zap.String("prefix", w.prefix), zap.Error(err))
				return progress
			}
			for _, ev := range resp.Events {
				if open != nil && ev.Kv.ModRevision > open.rev {
					if w.missed(open) {
						return w.gap(progress)
					}
					open = nil
				}
				if !w.apply(ev) {
					return progress
				}
				progress = true
			}
		}
		if behind {
			w.c.log.Warn("watch consumer too slow; changes are left out", zap.String("prefix", w.prefix), zap.Int("backlog", feed.Backlog))
		}
		if ended {
			return progress
		}
	}
}

// gap ends following because etcd differs from the events so far.
func (w *watch) gap(progress bool) bool {
	w.c.log.Debug("watch missed events", zap.String("prefix", w.prefix))
	return progress
}

// apply yields an event. It returns false if the caller has stopped iterating.
func (w *watch) apply(ev *clientv3.Event) bool {
	key := strings.TrimPrefix(string(ev.Kv.Key), w.c.store.layout.Own(""))
	if fence, ok := w.known[key]; ok && ev.Kv.ModRevision <= revision(fence) {
		return true // from before the page on which the key was read
	}
	if ev.Type == mvccpb.Event_DELETE {
		return w.freed(key, ev.Kv.ModRevision)
	}
	return w.claimed(key, ev.Kv)
}
