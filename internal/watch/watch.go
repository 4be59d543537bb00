// Package watch follows which keys are held. A watch of etcd can fall silent, so the package
// regularly compares what it has yielded with a read.
package watch

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/feed"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Kind is the kind of an Event, with the numbers of an etcdclaims.EventKind, which describes them.
type Kind int

// The kinds of events.
const (
	Claimed Kind = iota + 1
	Freed
	Synced
	Resynced
)

// Event is one change of ownership, or a note about the watch itself.
type Event[I any] struct {
	Kind     Kind
	Info     I
	Revision int64
}

// Config is what a Watch knows of its client. I describes the holder of a key.
type Config[I any] struct {
	Own    string // all claims have it before their keys in etcd
	Prefix string // of the keys that are watched
	Epoch  string // the epoch's key in etcd
	Log    *zap.Logger
	Every  time.Duration // between two comparisons with etcd

	// Claimed describes a key that is held, and returns its fence. Freed describes one that no
	// caller holds since the term with the fence.
	Claimed func(key string, kv *mvccpb.KeyValue) (I, int64)
	Freed   func(key string, fence int64) I

	// Pages reads all claims, and tries again. Read reads at one revision, and does not.
	Pages func(ctx context.Context) iter.Seq2[retry.Page, error]
	Read  func(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error)
	// Learn takes over the epoch.
	Learn func(kvs []*mvccpb.KeyValue, asOf int64) error
	// Begin begins a watch as feed.Open does.
	Begin func(ctx context.Context, key string, opts ...clientv3.OpOption) (news clientv3.WatchChan, stop context.CancelFunc, begun bool)
	// Advanced returns a channel that is closed when watches must begin anew.
	Advanced func() <-chan struct{}
	// MayPass reports whether the error of a read may pass.
	MayPass func(error) bool
}

// Watch is the state of one watch.
type Watch[I any] struct {
	cfg     Config[I]
	known   map[string]int64 // fence of each key that was yielded as claimed
	audited int64            // revision as of which known was right
	begun   bool
	over    bool  // the caller broke off, or nothing more can come
	failed  error // why nothing more can come
	yield   func(Event[I]) bool
}

// New returns a watch that has yielded nothing.
func New[I any](cfg Config[I]) *Watch[I] {
	return &Watch[I]{cfg: cfg, known: make(map[string]int64)}
}

// Run yields events until ctx ends or yield returns false. An error means that trying again would
// not help.
func (w *Watch[I]) Run(ctx context.Context, yield func(Event[I]) bool) error {
	w.yield = yield
	for try := 0; ; try++ {
		advanced := w.cfg.Advanced()
		rev, ok := w.sync(ctx)
		if !ok {
			return w.failed
		}
		if rev > 0 && w.follow(ctx, rev, advanced) {
			try = 0
		}
		if w.over || !retry.Pause(ctx, try) {
			return w.failed
		}
	}
}

func (w *Watch[I]) tell(e Event[I]) bool {
	if !w.over && !w.yield(e) {
		w.over = true
	}
	return !w.over
}

func (w *Watch[I]) fail(err error) {
	if !w.over {
		w.over, w.failed = true, err
	}
}

// sync reads all claims and yields the differences from the events so far.
func (w *Watch[I]) sync(ctx context.Context) (rev int64, ok bool) {
	own := w.cfg.Own
	there := make(map[string]bool)
	for p, err := range w.cfg.Pages(ctx) {
		if err != nil {
			if w.cfg.MayPass(err) {
				return 0, true // again, after a pause
			}
			if ctx.Err() == nil {
				w.fail(err)
			}
			return 0, false
		}
		if rev == 0 {
			rev = p.Rev // later pages may be younger: follow does not yield their content twice
			if w.begun && !w.tell(Event[I]{Kind: Resynced, Revision: rev}) {
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
		return rev, w.tell(Event[I]{Kind: Synced, Revision: rev})
	}
	return rev, true
}

// claimed yields an owner unless it was yielded before.
func (w *Watch[I]) claimed(key string, kv *mvccpb.KeyValue) bool {
	i, fence := w.cfg.Claimed(key, kv)
	if last, ok := w.known[key]; ok && last == fence {
		return true
	}
	w.known[key] = fence
	return w.tell(Event[I]{Kind: Claimed, Info: i, Revision: kv.ModRevision})
}

func (w *Watch[I]) freed(key string, rev int64) bool {
	last, ok := w.known[key]
	if !ok {
		return true
	}
	delete(w.known, key)
	return w.tell(Event[I]{Kind: Freed, Info: w.cfg.Freed(key, last), Revision: rev})
}

// follow yields the events after the revision until the watch ends. progress reports
// whether there was one.
func (w *Watch[I]) follow(ctx context.Context, rev int64, advanced <-chan struct{}) (progress bool) {
	own := w.cfg.Own
	w.audited = rev
	var news clientv3.WatchChan
	var stop context.CancelFunc
	for try := 0; ; try++ { // to begin again misses nothing
		var begun bool
		if news, stop, begun = w.cfg.Begin(ctx, own+w.cfg.Prefix, clientv3.WithPrefix(), clientv3.WithRev(rev+1)); begun {
			break
		}
		stop()
		if a := w.audit(ctx); a != nil && w.missed(a) || !retry.Pause(ctx, try) {
			return false
		}
	}
	defer stop()
	f := feed.From(news, stop)
	pulse := time.NewTicker(w.cfg.Every)
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
				w.cfg.Log.Debug("watch interrupted", zap.String("prefix", w.cfg.Prefix), zap.Error(err))
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
			w.cfg.Log.Warn("watch consumer too slow; changes are left out", zap.String("prefix", w.cfg.Prefix), zap.Int("backlog", feed.Backlog))
		}
		if ended {
			return progress
		}
	}
}

// gap ends following because etcd differs from the events so far.
func (w *Watch[I]) gap(progress bool) bool {
	w.cfg.Log.Debug("watch missed events", zap.String("prefix", w.cfg.Prefix))
	return progress
}

// apply yields an event. It returns false if the caller has stopped iterating.
func (w *Watch[I]) apply(ev *clientv3.Event) bool {
	key := strings.TrimPrefix(string(ev.Kv.Key), w.cfg.Own)
	if fence, ok := w.known[key]; ok && ev.Kv.ModRevision <= keyspace.Revision(fence) {
		return true // from before the page on which the key was read
	}
	if ev.Type == mvccpb.Event_DELETE {
		return w.freed(key, ev.Kv.ModRevision)
	}
	return w.claimed(key, ev.Kv)
}
