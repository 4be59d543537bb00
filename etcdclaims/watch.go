package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/watch"
	"go.etcd.io/etcd/api/v3/mvccpb"
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
		defer context.AfterFunc(c.life.Open, func() { cancel(ErrClosed) })()
		err := c.watchOf(prefix).Run(ctx, func(e watch.Event[Info]) bool {
			return yield(Event{Kind: EventKind(e.Kind), Info: e.Info, Revision: e.Revision}, nil)
		})
		if err != nil {
			yield(Event{}, errtext.CallOfAll(fmt.Sprintf("watch %q", prefix), err))
		}
	}
}

// watchOf returns the watch behind Watch.
func (c *Client) watchOf(prefix string) *watch.Watch[Info] {
	own, epoch := c.store.Layout.Own(""), c.store.Layout.Epoch()
	return watch.New(watch.Config[Info]{
		Own: own, Prefix: prefix, Epoch: epoch, Log: c.log, Every: c.cfg.timing(lease.Seconds(c.cfg.TTL)).Renew,
		Claimed:  func(key string, kv *mvccpb.KeyValue) (Info, int64) { i := c.info(key, kv, nil, 0); return i, i.Fence },
		Freed:    func(key string, fence int64) Info { return Info{Key: key, Fence: fence} },
		Pages:    func(ctx context.Context) iter.Seq2[retry.Page, error] { return c.pages(ctx, own+prefix, listPage) },
		Begin:    c.line.Watches.Begin,
		Advanced: c.store.Generation.Next,
		Read:     c.store.ReadAll,
		Learn:    c.store.LearnEpoch,
		MayPass:  func(err error) bool { return claimerr.IsPassing(err) || errors.Is(err, ErrRewound) },
	})
}
