package queue

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/keyspace"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Waiting yields the items that wait, without payloads, as of one revision of etcd. First come the visible
// items, in the order in which they are claimed, then those that wait for the turn of their partition key, key
// by key, and then those that have not vested, the soonest first. Items that have vested by the clock of this
// process count as visible, also if no keeper has moved them; their keys are held in memory.
func (q *Queue) Waiting(ctx context.Context) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		end := q.keys.Later() + keyspace.Instant(q.now()) + "0" // the byte behind the slash
		late, rev, err := q.lateItems(ctx, end)
		if err != nil {
			yield(Info{}, q.fail("list", err))
			return
		}
		// Those of late that come before a key of the ready items.
		before := func(key string) bool {
			n, _ := slices.BinarySearchFunc(late, key, func(l lateItem, key string) int { return strings.Compare(l.ready, key) })
			some := late[:n]
			late = late[n:]
			for page := range slices.Chunk(some, itemsPerRequest) {
				infos, err := q.describeAll(ctx, page, rev)
				for _, info := range infos {
					if !yield(info, nil) {
						return false
					}
				}
				if err != nil {
					yield(Info{}, q.fail("list", err))
					return false
				}
			}
			return true
		}
		for f, err := range q.listFrom(ctx, q.keys.Ready(), q.keys.Ready(), rev) {
			if err == nil && !before(f.entry.Key()) || !yield(f.Info, err) || err != nil {
				return
			}
		}
		if !before(clientv3.GetPrefixRangeEnd(q.keys.Ready())) {
			return
		}
		for _, part := range []struct{ prefix, from string }{{q.keys.Behind(), q.keys.Behind()}, {q.keys.Later(), end}} {
			for f, err := range q.listFrom(ctx, part.prefix, part.from, rev) {
				if !yield(f.Info, err) || err != nil {
					return
				}
			}
		}
	}
}

// lateItem is an item that has vested and that no keeper has moved.
type lateItem struct{ key, ready string } // where it is, and where it belongs

// lateItems returns the later items up to a key, in the order of the queue, and the revision
// that they are of.
func (q *Queue) lateItems(ctx context.Context, end string) (late []lateItem, rev int64, err error) {
	const most = 1000 // with one request
	op := clientv3.OpGet(q.keys.Later(), clientv3.WithRange(end), clientv3.WithKeysOnly())
	for page, err := range list(ctx, q.claims, op, most) {
		if err != nil {
			return nil, 0, err
		}
		rev = cmp.Or(rev, page.Rev)
		for _, kv := range page.Kvs {
			if ready, ok := q.keys.Vested(string(kv.Key)); ok {
				late = append(late, lateItem{string(kv.Key), ready})
			}
		}
	}
	slices.SortFunc(late, func(a, b lateItem) int { return strings.Compare(a.ready, b.ready) })
	return late, rev, nil
}

// describeAll reads items at a revision. What cannot be read is skipped and counted.
func (q *Queue) describeAll(ctx context.Context, items []lateItem, rev int64) (infos []Info, err error) {
	var ops []clientv3.Op
	for _, l := range items {
		ops = append(ops, clientv3.OpGet(l.key, clientv3.WithRev(rev)))
	}
	answers, err := q.readAll(ctx, ops)
	if err != nil {
		return nil, err
	}
	for r := range answers.Reads() {
		for _, kv := range r.Kvs {
			f, err := q.describe(found{}, kv)
			if err != nil {
				q.skip(err)
				continue
			}
			infos = append(infos, f.Info)
		}
	}
	return infos, nil
}
