package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/feed"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An Ending is how a term ended, as far as etcd's revisions show it:
//
//   - "released": the holder gave up its claim, or a program without this SDK deleted the key.
//     etcd's revisions are the same.
//   - "handed over": the holder gave its claim up to the first caller in line.
//   - "done", "failed", "dead" and "free" are of work: the state of its record after the term,
//     see work.State.
//   - "forced": ForceRelease ended the term. Term.Cause has its reason.
//   - "suspected": the first in line took the key because the holder's client did not answer;
//     see etcdclaims.Suspectable. Term.Cause names the client that took it.
//   - "lease ended": the lease expired or was revoked. The process died, was cut off from etcd,
//     or was closed without releasing.
//   - "replaced": another term took the place of this one in one transaction, without a
//     hand-over: Supersede, MinHold, or a zombie's key.
//   - "unknown": etcd's revisions do not show whether the key was released or its lease ended.
//     So it is for locks, for the first term after a compaction, for terms that are compacted
//     while they are read, and for a shared key whose record was deleted by hand.
type Ending string

const (
	endingReleased   Ending = "released"
	endingDone       Ending = "done"
	endingFailed     Ending = "failed"
	endingDead       Ending = "dead"
	endingFree       Ending = "free"
	endingForced     Ending = "forced"
	endingSuspected  Ending = "suspected"
	endingLease      Ending = "lease ended"
	endingReplaced   Ending = "replaced"
	endingHandedOver Ending = "handed over"
	endingUnknown    Ending = "unknown"
)

// Term is one term of ownership of a key. The term of a shared key, of the Kind "shared", lasts
// from the first of its holders to the last. It ends as the last one's claim did, and has no
// owner: History of the key of each claim has that, see etcdclaims.SharedPrefix.
type Term struct {
	Key      string
	Fence    int64
	Claim    string    // ID of the term; see etcdclaims.Claim.ID
	Owner    string    // label of the holder, for people
	Instance string    // client of the holder; see etcdclaims.Client.Instance
	Since    time.Time // when the holder asked for the key, by its wall clock: a time in line counts
	Attempt  int       // as etcdclaims.Info.Attempt
	Kind     string    // as etcdclaims.Info.Kind
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
func (t Term) Revision() int64 { return keyspace.Revision(t.Fence) }

// KeyHistory is what etcd still knows of the terms of a key.
type KeyHistory struct {
	Terms []Term // oldest first
	// Older is how many terms were left out because they are older: see Newest.
	Older int
	// From is the first revision that etcd still has. Terms that ended before it
	// are missing.
	From int64
	// Revision is the revision of etcd up to which the history was read.
	Revision int64
}

// maxHistory is how many terms History returns: the newest ones. A key that
// changes hands a thousand times a second has millions before the compaction.
const maxHistory = 10_000

// HistoryOption is an option of [History].
type HistoryOption interface{ limit(terms *int) }

type newest int

func (n newest) limit(terms *int) { *terms = int(n) }

// Newest makes History return at most the newest n terms, from 1 to 10,000. The default is
// 10,000. A caller that shows a few terms should use it: each returned term that has ended
// costs reads.
func Newest(n int) HistoryOption { return newest(n) }

// History returns the terms of the key since etcd's last compaction, at most the
// newest 10,000. It needs no record of its own: a claim's key is put once per
// term, so that etcd's own revisions are the history. It writes nothing.
//
// History makes etcd read its revisions since the compaction once, by one watch. It keeps
// no more of them in memory than twice the terms that it returns. How the terms ended is read
// afterwards, for about 30 of them in a request.
//
// ctx should have a deadline.
func History(ctx context.Context, claims *etcdclaims.Client, key string, opts ...HistoryOption) (KeyHistory, error) {
	c := of(claims)
	if err := c.CheckKey(key); err != nil {
		return KeyHistory{}, err
	}
	keep := maxHistory
	for _, o := range opts {
		o.limit(&keep)
	}
	if keep < 1 || keep > maxHistory {
		return KeyHistory{}, fmt.Errorf("etcdclaims: Newest(%d): want 1 to %d", keep, maxHistory)
	}
	if c.claims.Passthrough() {
		return KeyHistory{}, nil
	}
	h, err := c.history(ctx, key, keep)
	if err != nil {
		return KeyHistory{}, errtext.Call("read the history of", key, txn.WithCause(ctx, err))
	}
	return h, nil
}

func (c client) history(ctx context.Context, key string, keep int) (KeyHistory, error) {
	// Not a serializable read: all that is over when the call begins is in it.
	resp, err := c.Read(ctx, clientv3.OpGet(c.Layout().Own(key)))
	if err != nil {
		return KeyHistory{}, err
	}
	h := KeyHistory{From: 1, Revision: resp.Header.Revision}
	for {
		log, compacted, err := c.termsFrom(ctx, key, keep, h)
		if err != nil {
			return KeyHistory{}, err
		}
		if compacted > h.From {
			h.From = compacted
			continue
		}
		if err := c.explainEndings(ctx, log.newest(), h.From); err != nil {
			return KeyHistory{}, err
		}
		for _, t := range log.newest() {
			h.Terms = append(h.Terms, t.Term)
		}
		h.Older = log.dropped + len(log.terms) - len(h.Terms)
		return h, nil
	}
}

// termsFrom reads the terms of a key up to h.Revision. If h.From is compacted, it returns the
// first revision that is not.
func (c client) termsFrom(ctx context.Context, key string, keep int, h KeyHistory) (log *termLog, compacted int64, err error) {
	log = &termLog{c: c, key: key, keep: keep}
	own := c.Layout().Own(key)
	if h.From > 1 { // else it has no claim yet
		resp, err := c.Read(ctx, clientv3.OpGet(own, clientv3.WithRev(h.From)))
		switch {
		case errors.Is(err, rpctypes.ErrCompacted): // since the watch said so; it will again
		case err != nil:
			return nil, 0, err
		default:
			if kv := txn.First(resp, 0); kv != nil && kv.ModRevision < h.From {
				log.begin(kv).Partial = true
			}
		}
	}
	compacted, err = feed.Past(ctx, c.claims.Etcd(), own, h.From, h.Revision, log.add,
		clientv3.WithRange(c.Layout().SharersEnd(key)), clientv3.WithPrevKV())
	return log, compacted, err
}
