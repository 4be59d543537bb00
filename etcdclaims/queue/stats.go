package queue

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Stats counts the items of a queue, at one revision of etcd.
type Stats struct {
	Ready int // visible
	Later int // not vested, or vested but not yet moved to the ready ones, unlike for Waiting and Look
	Taken int // workers have them
	// Behind is how many items have vested and wait for the turn of their partition key; see
	// PartitionKey. Ready does not include them.
	Behind int
	Dead   int
	// OldestReady is the earliest vesting time of all visible items, among the first 32
	// priorities. With Config.Aging it is the earliest among the first 256 items: one that is
	// behind them can be older. It is zero if no item is visible.
	OldestReady time.Time
	// Paused is who paused the queue, when and why. Its At is zero if the queue is not
	// paused, or the pause is over by the clock of this process.
	Paused Pausing
	// Skipped is how many times this process has found a value that it cannot read.
	Skipped int64
}

// Pausing is who paused a queue, when and why.
type Pausing struct {
	By, Why string
	At      time.Time // when Pause was called
	// Until is when the pause ends by itself: see For. It is zero if the queue is paused until Resume.
	Until time.Time
}

// Stats counts at one revision of etcd. It keeps no counters, so it is right after any
// crash. It reads one key for each priority of visible items. That takes one request, and
// one more for each priority that the last call did not find. With Config.Aging it reads up to
// 256 keys of visible items by one request.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	for try := 1; ; try++ {
		st, err := q.stats(ctx)
		switch {
		case err == nil:
			return st, nil
		case try == statsTries || !errors.Is(err, rpctypes.ErrCompacted):
			return Stats{}, q.fail("stats", err)
		}
	}
}

// statsTries is how often Stats begins if its revision is compacted meanwhile. What one try
// has learned about the priorities lets the next one read more at once.
const statsTries = 5

// stats reads the state at one revision.
func (q *Queue) stats(ctx context.Context) (Stats, error) {
	count := func(prefix string) clientv3.Op {
		return clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	}
	ops := []clientv3.Op{
		count(q.keys.Ready()), count(q.keys.Later()), count(q.keys.Taken()), count(q.keys.Dead()),
		clientv3.OpGet(q.keys.Paused()), count(q.keys.Behind()), q.firstReady(""),
	}
	var ranks []string
	if last := q.ranks.Load(); last != nil {
		ranks = *last
	}
	for _, r := range ranks {
		ops = append(ops, q.firstReady(r))
	}
	resp, err := q.read(ctx, ops...)
	if err != nil {
		return Stats{}, err
	}
	n := func(i int) int { return int(txn.Count(resp, i)) }
	st := Stats{Ready: n(0), Later: n(1), Taken: n(2), Dead: n(3), Behind: n(5), Skipped: q.skipped.Load()}
	if kvs := txn.Kvs(resp, 4); len(kvs) > 0 {
		if p, err := item.Decode[item.Pausing](kvs[0].Key, kvs[0].Value); err == nil && !p.Over(q.now()) {
			st.Paused = Pausing{By: p.By, Why: p.Why, At: p.At, Until: p.Until}
		}
	}
	first := map[string][]*mvccpb.KeyValue{}
	for i, r := range append([]string{""}, ranks...) {
		first[r] = txn.Kvs(resp, 6+i)
	}
	if st.OldestReady, err = q.oldestReady(ctx, resp.Header.Revision, first); err != nil {
		return Stats{}, err
	}
	return st, nil
}

// rankLength is how long a rank is in a key.
const rankLength = 16

// mostRanks bounds the priorities that Stats looks at. If items age, each has a rank of its own, and Stats
// looks at the first agedItems.
const (
	mostRanks = 32
	agedItems = 256
)

// firstReady reads the first key of the visible items behind a rank, or the first keys if items age.
func (q *Queue) firstReady(rank string, opts ...clientv3.OpOption) clientv3.Op {
	from := q.keys.Ready() + rank
	if rank != "" {
		from += "0" // the byte behind the slash
	}
	n := int64(1)
	if q.cfg.Aging > 0 {
		n = agedItems
	}
	end := clientv3.WithRange(clientv3.GetPrefixRangeEnd(q.keys.Ready()))
	return clientv3.OpGet(from, append(opts, end, clientv3.WithKeysOnly(), clientv3.WithLimit(n))...)
}

// oldestReady returns when the item vested that has been visible for longest: the first
// item of one of the ranks. first has the first key behind each rank, as far as it was
// read already.
func (q *Queue) oldestReady(ctx context.Context, rev int64, first map[string][]*mvccpb.KeyValue) (oldest time.Time, err error) {
	var seen []string
	defer func() { q.ranks.Store(&seen) }()
	for rank := ""; len(seen) < mostRanks; seen = append(seen, rank) {
		kvs, read := first[rank]
		if !read {
			resp, err := q.read(ctx, q.firstReady(rank, clientv3.WithRev(rev)))
			if err != nil {
				return oldest, err
			}
			kvs = txn.Kvs(resp, 0)
		}
		if len(kvs) == 0 {
			break
		}
		for _, kv := range kvs {
			var vesting string
			rank, vesting, _ = strings.Cut(string(kv.Key[len(q.keys.Ready()):]), "/")
			t, err := item.VestingOf(vesting)
			if err == nil && len(rank) == rankLength && (oldest.IsZero() || t.Before(oldest)) {
				oldest = t
			}
		}
		if q.cfg.Aging > 0 {
			break
		}
	}
	return oldest, nil
}

// Active returns the names of the queues under the client's prefix that have items, or
// had some until a minute ago. It reads one key for each queue, and no items.
func Active(ctx context.Context, claims *etcdclaims.Client) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := passthrough.Refuse(claims); err != nil {
			yield("", err)
			return
		}
		prefix := item.Actives(claims.Prefix())
		for page, err := range list(ctx, claims, clientv3.OpGet(prefix, clientv3.WithPrefix()), pageSize) {
			if err != nil {
				yield("", err)
				return
			}
			for _, kv := range page.Kvs {
				s, err := item.Decode[spec](kv.Key, kv.Value)
				if err != nil {
					continue // of a newer version
				}
				if !yield(s.Name, nil) {
					return
				}
			}
		}
	}
}
