package etcdclaims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/etcdclaims/claims/internal/feed"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An Ending is how a term ended, as far as etcd's revisions show it.
type Ending string

// The endings of terms.
const (
	// EndingReleased means that the holder gave up its claim.
	EndingReleased Ending = "released"
	// EndingDone, EndingFailed, EndingDead and EndingFree are the endings of
	// work: the state of its record after the term.
	EndingDone   Ending = "done"
	EndingFailed Ending = "failed"
	EndingDead   Ending = "dead"
	EndingFree   Ending = "free"
	// EndingForced means that ForceRelease ended the term. Term.Cause has its
	// reason.
	EndingForced Ending = "forced"
	// EndingSuspected means that the first in line took the key because the holder's client
	// did not answer; see Suspectable. Term.Cause names the client that took it.
	EndingSuspected Ending = "suspected"
	// EndingLease means that the lease expired or was revoked: the process died,
	// was cut off from etcd, or was closed without releasing.
	EndingLease Ending = "lease ended"
	// EndingReplaced means that another term took the place of this one in one
	// transaction, without a hand-over: Supersede, MinHold, or a zombie's key.
	EndingReplaced Ending = "replaced"
	// EndingHandedOver means that the holder gave its claim up to the first
	// caller in line.
	EndingHandedOver Ending = "handed over"
	// EndingUnknown means that etcd's revisions do not show whether the key was
	// released or its lease ended. It is used for locks, for the first term after a
	// compaction, and for terms that are compacted while they are read.
	EndingUnknown Ending = "unknown"
)

// Term is one term of ownership of a key.
type Term struct {
	Key      string
	Fence    int64
	Claim    string    // ID of the term; see Claim.ID
	Owner    string    // label of the holder, for people
	Instance string    // client of the holder; see Client.Instance
	Since    time.Time // when the holder asked for the key, by its wall clock: a time in line counts
	Attempt  int       // number of the work's attempt; 0 for a claim without a record
	Kind     string    // as Info.Kind
	// EndRevision is etcd's revision at which the term ended, 0 while it lasts.
	// Compare it with Term.Revision, not with Fence.
	EndRevision int64
	Ending      Ending // empty while the term lasts
	Cause       string // of a forced release: who did it, and why
	// Partial means that the beginning of the term is older than etcd's last
	// compaction.
	Partial bool
}

// Revision returns the etcd revision at which the term began: the fence without the
// epoch.
func (t Term) Revision() int64 { return revision(t.Fence) }

// History is what etcd still knows of the terms of a key.
type History struct {
	Terms []Term // oldest first
	// From is the first revision that etcd still has. Terms that ended before it
	// are missing.
	From int64
	// Revision is the revision of etcd up to which the history was read.
	Revision int64
}

// maxHistory is how many terms History returns: the newest ones. A key that
// changes hands a thousand times a second has millions before the compaction.
const maxHistory = 10_000

// History returns the terms of the key since etcd's last compaction, at most the
// newest 10,000. It needs no record of its own: a claim's key is put once per
// term, so that etcd's own revisions are the history. It writes nothing, and
// makes etcd read the key's revisions since the compaction.
//
// ctx should have a deadline.
func (c *Client) History(ctx context.Context, key string) (History, error) {
	if err := checkKey(key); err != nil {
		return History{}, err
	}
	if c.Passthrough() {
		return History{}, nil
	}
	own := c.store.layout.own(key)
	// Not a serializable read: all that is over when the call begins is in it.
	resp, err := c.read(ctx, clientv3.OpGet(own))
	if err != nil {
		return History{}, callError("read the history of", key, err)
	}
	h := History{From: 1, Revision: resp.Header.Revision}
	events, from, err := c.eventsOf(ctx, own, resp.Header.Revision)
	if err != nil {
		return History{}, callError("read the history of", key, txn.WithCause(ctx, err))
	}
	h.From = from
	h.Terms = c.termsOf(key, events)
	if own := firstKV(resp, 0); own != nil && len(events) == 0 {
		t := c.termOf(key, own)
		t.Partial = true // put before the compaction
		h.Terms = append(h.Terms, t)
	}
	h.Terms = h.Terms[max(0, len(h.Terms)-maxHistory):]
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	terms := make([]*Term, len(h.Terms))
	for i := range h.Terms {
		terms[i] = &h.Terms[i]
	}
	eachOf(terms, func(t *Term) { // each takes a read or two
		if ctx.Err() != nil {
			return
		}
		switch err := c.explainEnding(ctx, t, from); {
		case errors.Is(err, rpctypes.ErrCompacted):
			t.Ending = EndingUnknown // compacted since
		case err != nil:
			cancel(err)
		}
	})
	if ctx.Err() != nil {
		return History{}, callError("read the history of", key, context.Cause(ctx))
	}
	return h, nil
}

// eventsOf returns the changes of one key up to the revision, and the first
// revision that etcd still has.
func (c *Client) eventsOf(ctx context.Context, name string, until int64) ([]*clientv3.Event, int64, error) {
	for from := int64(1); ; {
		events, compacted, err := c.eventsFrom(ctx, name, from, until)
		if compacted < from {
			return events, from, err
		}
		from = compacted
	}
}

// eventsFrom is eventsOf from a revision on. If that is compacted, it returns the
// first one that is not.
func (c *Client) eventsFrom(ctx context.Context, name string, from, until int64) (events []*clientv3.Event, compacted int64, err error) {
	// A stream of its own: a member answers requests for progress only if no watch on
	// the stream waits for a revision to come, as those of Watch do, or is behind, as
	// that of another call may be.
	ctx = feed.OnStream(ctx, "history-"+strconv.FormatInt(c.histories.Add(1), 10))
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	watch := c.etcd.Watch(ctx, name, clientv3.WithRev(from), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	const again = 100 * time.Millisecond
	ask := time.NewTicker(again)
	defer ask.Stop()
	for {
		select {
		case resp, ok := <-watch:
			switch {
			case !ok && ctx.Err() != nil:
				return nil, 0, context.Cause(ctx)
			case !ok:
				return nil, 0, errors.New("the watch has ended")
			case resp.CompactRevision > 0:
				return nil, resp.CompactRevision, nil
			case resp.Err() != nil:
				return nil, 0, resp.Err()
			}
			for _, ev := range resp.Events {
				if ev.Kv.ModRevision > until {
					return events, 0, nil
				}
				events = append(events, ev)
			}
			// Events of one watch come in order. What follows an event or a
			// progress at the revision is newer.
			done := resp.IsProgressNotify() && resp.Header.Revision >= until
			if n := len(events); done || n > 0 && events[n-1].Kv.ModRevision == until {
				return events, 0, nil
			}
			if resp.Created {
				// The answer comes when the watch has caught up.
				if err := c.etcd.RequestProgress(ctx); err != nil {
					return nil, 0, err
				}
			}
		case <-ask.C: // a member leaves a request unanswered while a watch catches up
			if err := c.etcd.RequestProgress(ctx); err != nil {
				return nil, 0, err
			}
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
	}
}

// termsOf makes terms of the events of a claim's key.
func (c *Client) termsOf(key string, events []*clientv3.Event) []Term {
	var terms []Term
	for _, ev := range events {
		if len(terms) == 0 && ev.PrevKv != nil {
			t := c.termOf(key, ev.PrevKv)
			t.Partial = true
			terms = append(terms, t)
		}
		if n := len(terms); n > 0 && terms[n-1].EndRevision == 0 {
			last := &terms[n-1]
			last.EndRevision, last.Ending = ev.Kv.ModRevision, EndingReleased
			if ev.Type == mvccpb.PUT {
				last.Ending = EndingReplaced
			}
		}
		if ev.Type == mvccpb.PUT {
			terms = append(terms, c.termOf(key, ev.Kv))
		}
	}
	return terms
}

func (c *Client) termOf(key string, kv *mvccpb.KeyValue) Term {
	i := c.info(key, kv, nil, 0)
	return Term{
		Key: key, Fence: i.Fence, Claim: i.Claim, Owner: i.Owner, Instance: i.Instance,
		Since: i.Since, Attempt: i.Attempt, Kind: i.Kind,
	}
}

// explainEnding reads what else changed at the revision at which the term ended.
func (c *Client) explainEnding(ctx context.Context, t *Term, from int64) error {
	if t.EndRevision == 0 || t.EndRevision < from || t.Claim == "" {
		return nil
	}
	l := layout{prefix: c.cfg.Prefix, instance: t.Instance}
	at := clientv3.WithRev(t.EndRevision)
	ops := []clientv3.Op{
		clientv3.OpGet(l.evict(t.Instance, t.Claim), at),
		clientv3.OpGet(l.work(t.Key), at),
		clientv3.OpGet(l.own(t.Key), at),
		clientv3.OpGet(l.session(t.Instance)+"live/", clientv3.WithPrefix(), at),
	}
	if t.EndRevision > from {
		before := clientv3.WithRev(t.EndRevision - 1)
		ops = append(ops,
			clientv3.OpGet(l.own(t.Key), before),
			clientv3.OpGet(l.session(t.Instance)+"live/", clientv3.WithPrefix(), before))
	}
	resp, err := c.read(ctx, ops...)
	if err != nil {
		return fmt.Errorf("reading how the term with fence %d ended: %w", t.Fence, err)
	}
	if kv := firstKV(resp, 0); kv != nil && kv.ModRevision == t.EndRevision {
		var e eviction
		if json.Unmarshal(kv.Value, &e) == nil && e.Version <= valueVersion {
			if t.Ending, t.Cause = EndingForced, e.By+": "+e.Reason; e.Suspected {
				t.Ending = EndingSuspected
			}
			return nil
		}
	}
	if kv := firstKV(resp, 1); kv != nil && kv.ModRevision == t.EndRevision && t.Attempt > 0 {
		switch r, err := decodeRecord(t.Key, kv); {
		case err != nil:
		case r.State == StateDone, r.State == StateFailed, r.State == StateDead, r.State == StateFree:
			t.Ending = Ending(r.State)
			return nil
		}
	}
	if next := firstKV(resp, 2); next != nil {
		n := c.info(t.Key, next, nil, 0)
		if n.Kind != kindZombie && n.Kind != kindResting && n.Claim != t.Claim && t.Ending == EndingReplaced && n.Instance != "" {
			return c.handedOver(ctx, t, n, at)
		}
		return nil
	}
	if t.Kind == kindZombie || t.Kind == kindResting {
		t.Ending = EndingLease // only the end of its lease ends such a term
		return nil
	}
	t.Ending = EndingUnknown
	if len(ops) > 4 {
		own := firstKV(resp, 4)
		onLease := func(kv *mvccpb.KeyValue) bool { return own != nil && own.Lease != 0 && kv.Lease == own.Lease }
		was := slices.ContainsFunc(resp.Responses[5].GetResponseRange().Kvs, onLease)
		is := slices.ContainsFunc(resp.Responses[3].GetResponseRange().Kvs, onLease)
		switch {
		case is:
			t.Ending = EndingReleased
		case was:
			t.Ending = EndingLease
		}
	}
	return nil
}

// handedOver finds out whether the term was handed to n, whose notice was put with
// it.
func (c *Client) handedOver(ctx context.Context, t *Term, n Info, at clientv3.OpOption) error {
	resp, err := c.read(ctx, clientv3.OpGet(c.store.layout.notice(n.Instance, n.Claim), at))
	if err != nil {
		return fmt.Errorf("reading how the term with fence %d ended: %w", t.Fence, err)
	}
	if kv := firstKV(resp, 0); kv != nil && kv.ModRevision == t.EndRevision {
		t.Ending = EndingHandedOver
	}
	return nil
}
