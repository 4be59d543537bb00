package concurrency

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/feed"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Observe returns a channel that delivers the leader, as Leader returns it, and then each leader and
// value that follows. A receiver that is slower misses values, but not the newest one. While there is no
// leader it delivers nothing. The channel is closed when ctx or the session ends, and if etcd refuses the reads.
func (e *Election) Observe(ctx context.Context) <-chan *clientv3.GetResponse {
	out := make(chan *clientv3.GetResponse)
	begun := core.Of(e.s.claims).Go(func(open context.Context) {
		defer close(out)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(open, cancel)()
		e.observe(ctx, out)
	})
	if !begun {
		close(out)
	}
	return out
}

// observe reads the leader after each hint of a watch, and every third of the TTL: a watch can fall silent.
func (e *Election) observe(ctx context.Context, out chan<- *clientv3.GetResponse) {
	c := core.Of(e.s.claims)
	var streams feed.Streams
	var news *feed.Feed // nil: a new watch follows the next read
	stop := func() {}
	audit := time.NewTicker(e.s.opts.cfg.TTL / 3)
	defer audit.Stop()
	seen := int64(0) // modification revision of the newest value
	for failures := 0; ; {
		now, err := e.s.leader(ctx, e.pfx)
		if err != nil {
			if !claimerr.IsPassing(err) || !retry.PauseUnless(ctx, c.Closing(), failures) {
				return
			}
			failures++
			continue
		}
		failures = 0
		if news == nil {
			var watch clientv3.WatchChan
			watch, stop = streams.Open(ctx, e.s.etcd, c.Store().Timeout(), c.Layout().Note(e.pfx), clientv3.WithRev(now.Header.Revision+1))
			news = feed.From(watch, stop)
		}
		var to chan<- *clientv3.GetResponse // nil: there is nothing new
		if len(now.Kvs) > 0 && now.Kvs[0].ModRevision != seen {
			to = out
		}
		for again := false; !again; {
			select {
			case to <- now:
				to, seen = nil, now.Kvs[0].ModRevision
			case <-news.Ready():
				again = true
				if _, ended, _ := news.Take(); ended {
					stop()
					news = nil
					_ = retry.PauseUnless(ctx, c.Closing(), 3) // the reason may last
				}
			case <-audit.C:
				again = true
			case <-ctx.Done():
				stop()
				return
			}
		}
	}
}

// leader reads the leader's key and note. Without a leader the response has no key-values.
func (s *Session) leader(ctx context.Context, pfx string) (*clientv3.GetResponse, error) {
	c := core.Of(s.claims)
	if err := c.CheckClaimed(pfx); err != nil {
		return nil, err
	}
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	l := c.Layout()
	resp, err := c.Read(ctx, clientv3.OpGet(l.Own(pfx)), clientv3.OpGet(l.Note(pfx)))
	if err != nil {
		return nil, err
	}
	leader := &clientv3.GetResponse{Header: resp.Header}
	own, note := txn.First(resp, 0), txn.First(resp, 1)
	if own == nil || note == nil || own.Lease != note.Lease { // of a claim that does not lead, or left over by one that did
		return leader, nil
	}
	value, err := keyspace.Decode[protocol.Note]("the leader", note.Value, protocol.Version)
	if err != nil {
		return nil, err
	}
	leader.Count = 1
	leader.Kvs = []*mvccpb.KeyValue{{
		Key: own.Key, CreateRevision: own.CreateRevision, Lease: own.Lease,
		Value: value.Bytes(), ModRevision: note.ModRevision, Version: note.Version,
	}}
	return leader, nil
}
