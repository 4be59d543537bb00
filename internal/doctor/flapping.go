package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/feed"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// terms are those of one key that began in the revisions that were read, since one was kept.
type terms struct {
	key         string
	n           int
	owners      map[string]bool
	lapsed      int       // how many ended with their leases
	first, last time.Time // when their owners asked for the key: etcd keeps no times
}

// perMinute returns how many terms begin in a minute.
func (t terms) perMinute() float64 {
	return float64(t.n-1) / max(t.last.Sub(t.first), time.Second).Minutes()
}

// kept reports whether a term lasts until the time: for much longer than those before it.
func (t terms) kept(until time.Time) bool {
	longer := time.Minute
	if t.n > 1 {
		longer = max(etcdclaims.DefaultTTL, 5*t.last.Sub(t.first)/time.Duration(t.n-1))
	}
	return t.n > 0 && until.Sub(t.last) > longer
}

// flaps reports whether a leader is not kept: several terms, one a minute at least, and most of
// them ended with their leases. Keys that are released are locks, or leaders whose handler returns.
func (t terms) flaps(now time.Time) bool {
	const least = 4
	return t.n >= least && t.perMinute() >= 1 && 2*t.lapsed >= t.n-1 && !t.kept(now)
}

// flapping looks for keys whose holders die or are cut off again and again, in etcd's latest
// revisions.
func (e *Examination) flapping(ctx context.Context) {
	all, revisions, err := e.readTerms(ctx)
	if e.failed(Note, "flapping", "the last terms cannot be read", err) {
		return
	}
	now := clock.Clock{}.Time()
	all = slices.DeleteFunc(all, func(t terms) bool { return !t.flaps(now) })
	slices.SortFunc(all, func(a, b terms) int {
		return cmp.Or(cmp.Compare(b.perMinute(), a.perMinute()), cmp.Compare(a.key, b.key))
	})
	if len(all) == 0 {
		e.well("flapping", "no key flaps in the last %s", errtext.Count(revisions, "revision", "revisions"))
		return
	}
	var keys []string
	for _, t := range all {
		keys = append(keys, fmt.Sprintf("%s (%.1f terms a minute, %s)", t.key, t.perMinute(), several(slices.Sorted(maps.Keys(t.owners)))))
	}
	e.Add(Warning, "flapping", "look for restarts of these processes, and for \"etcd unreachable\" in their logs",
		"holders die or are cut off again and again: %s", several(keys),
	).run(e.claimctl("history --limit 20", all[0].key))
}

// mostRevisions is how many of etcd's revisions are read for each claim of Limit.
const mostRevisions = 4

// readTerms reads the claims that were put in etcd's latest revisions, and how many those are. The
// sentinel of a session is deleted at the revision at which its claims are, if its lease ends.
func (e *Examination) readTerms(ctx context.Context) (all []terms, revisions int64, err error) {
	own, live := e.Claims.OwnKey(""), e.Claims.Prefix()+"session/"
	now, err := e.etcd().Get(ctx, own, clientv3.WithCountOnly())
	if err != nil {
		return nil, 0, err
	}
	last := now.Header.Revision
	from := max(1, last-int64(mostRevisions*e.Limit))
	ended := map[int64]bool{}
	end := func(ev *clientv3.Event) { ended[ev.Kv.ModRevision] = true }
	if from, err = e.eachChange(ctx, live, from, last, end, clientv3.WithFilterPut()); err != nil {
		return nil, 0, err
	}
	byKey := map[string]*terms{}
	from, err = e.eachChange(ctx, own, from, last, func(ev *clientv3.Event) {
		key := strings.TrimPrefix(string(ev.Kv.Key), own)
		t := byKey[key]
		if t == nil {
			t = &terms{key: key, owners: map[string]bool{}}
			byKey[key] = t
		}
		t.add(ev, ended[ev.Kv.ModRevision])
	})
	for _, t := range byKey {
		all = append(all, *t)
	}
	return all, last - from + 1, err
}

// add counts a term that begins, or one that ends. Values that this version cannot read, and
// records of keys with several claims, are no terms.
func (t *terms) add(ev *clientv3.Event, lapsed bool) {
	if ev.Type == clientv3.EventTypeDelete {
		if lapsed {
			t.lapsed++
		}
		return
	}
	var h protocol.Holder
	if json.Unmarshal(ev.Kv.Value, &h) != nil || keyspace.Newer(h.Version, protocol.Version) != nil || explain.IsRecord(h.Kind) {
		return
	}
	at := keyspace.Time(h.Since)
	if t.kept(at) {
		*t = terms{key: t.key, owners: map[string]bool{}}
	}
	t.n++
	t.owners[h.Owner] = true
	if at.IsZero() {
		return
	}
	if t.first.IsZero() || at.Before(t.first) {
		t.first = at
	}
	if at.After(t.last) {
		t.last = at
	}
}

// eachChange calls f for the changes below a prefix from one revision to another. It returns the
// first revision that was read: earlier ones may be compacted.
func (e *Examination) eachChange(
	ctx context.Context, prefix string, from, to int64, f func(*clientv3.Event), opts ...clientv3.OpOption,
) (int64, error) {
	for {
		compacted, err := feed.Past(ctx, e.etcd(), prefix, from, to, f, append(opts, clientv3.WithPrefix())...)
		if err != nil || compacted <= from {
			return from, err
		}
		from = compacted
	}
}
