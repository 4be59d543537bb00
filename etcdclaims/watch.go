package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// EventKind says what happened to a key.
type EventKind int

// What Watch tells.
const (
	// Claimed: the key has an owner, with the Info's fence. It is told of
	// every key that is held when the watch begins, too.
	Claimed EventKind = iota + 1
	// Freed: the key has none. Of the Info only Key, Held and the fence of the
	// term that ended are filled in.
	Freed
	// Synced: all that was held when the watch began has been told.
	Synced
	// Resynced: there was a gap, by compaction or a long disconnection. What
	// differs from what was told before follows as Claimed and Freed; terms
	// that began and ended within the gap are not known.
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

// Event is one change of ownership.
type Event struct {
	Kind     EventKind
	Info     Info // zero for Synced and Resynced
	Revision int64
}

// Watch yields what happens to the keys with the prefix ("" for all), beginning
// with what is held now, until ctx ends, the client is closed, or the caller
// breaks off. It survives disconnections and compaction, and says so
// (Resynced). An error is the last that it yields: one that trying again would
// not change, such as a missing permission.
//
// It is for observers. It comes late, as all news do: never take it for
// ownership.
func (c *Client) Watch(ctx context.Context, prefix string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if c.Passthrough() {
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(c.open, func() { cancel(ErrClosed) })()
		w := &watch{c: c, prefix: prefix, known: make(map[string]int64), yield: yield}
		for try := 0; ; try++ {
			turned := c.store.turns.next()
			rev, ok := w.sync(ctx)
			if !ok {
				return
			}
			if rev > 0 && w.follow(ctx, rev, turned) {
				try = 0
			}
			if w.over || !backOff(ctx, try) {
				return
			}
		}
	}
}

// watch is the state of one Watch.
type watch struct {
	c      *Client
	prefix string
	known  map[string]int64 // fence of each key told as claimed
	begun  bool
	over   bool // the caller broke off, or nothing more can come
	yield  func(Event, error) bool
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
		w.yield(Event{}, fmt.Errorf("etcdclaims: watching %q: %w", w.prefix, err))
	}
}

// sync reads everything and tells what differs from what was told.
func (w *watch) sync(ctx context.Context) (rev int64, ok bool) {
	own := w.c.store.layout.own("")
	there := make(map[string]bool)
	for p, err := range w.c.pages(ctx, own, w.prefix) {
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
			rev = p.rev // later pages may be younger: what they tell is not told twice
			if w.begun && !w.tell(Event{Kind: Resynced, Revision: rev}) {
				return 0, false
			}
		}
		for _, kv := range p.kvs {
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

// claimed tells of an owner unless it was told before.
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

// follow tells what happens after the revision until the watch ends; progress
// says that it told anything.
func (w *watch) follow(ctx context.Context, rev int64, turned <-chan struct{}) (progress bool) {
	own := w.c.store.layout.own("")
	var news clientv3.WatchChan
	var stop context.CancelFunc
	for try := 0; ; try++ { // to begin again misses nothing
		var begun bool
		if news, stop, begun = w.c.beginWatch(ctx, own+w.prefix, clientv3.WithPrefix(), clientv3.WithRev(rev+1)); begun {
			break
		}
		stop()
		if !backOff(ctx, try) {
			return false
		}
	}
	defer stop()
	pulse := time.NewTicker(w.c.cfg.timing(seconds(w.c.cfg.TTL)).renew)
	defer pulse.Stop()
	for {
		var resp clientv3.WatchResponse
		var ok bool
		select {
		case resp, ok = <-news:
		case <-turned: // revisions may be others now
		case <-pulse.C:
			w.c.askEpoch(ctx)
			continue
		}
		if !ok {
			return progress
		}
		if err := resp.Err(); err != nil {
			// Compaction, a lost leader and the like are mended by reading
			// again; a missing permission is not, and shows there.
			w.c.log.Debug("watch interrupted", zap.String("prefix", w.prefix), zap.Error(err))
			return progress
		}
		for _, ev := range resp.Events {
			key := strings.TrimPrefix(string(ev.Kv.Key), own)
			ok := true
			if ev.Type == mvccpb.Event_DELETE {
				ok = w.freed(key, ev.Kv.ModRevision)
			} else {
				ok = w.claimed(key, ev.Kv)
			}
			if !ok {
				return progress
			}
			progress = true
		}
	}
}

// askEpoch reads the epoch if no renewal does: by that the client learns of a
// restore, after which a watch may be silent for long.
func (c *Client) askEpoch(ctx context.Context) {
	for _, s := range c.liveSessions() {
		if !s.manual {
			return
		}
	}
	resp, err := c.store.do(ctx, request{then: []clientv3.Op{clientv3.OpGet(c.store.layout.epoch())}})
	if err == nil {
		err = c.store.learnEpoch(resp.Responses[0].GetResponseRange().Kvs, resp.Header.Revision)
	}
	if err != nil {
		c.log.Debug("the epoch cannot be read", zap.Error(err))
	}
}
