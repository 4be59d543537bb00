package queue

import (
	"context"
	"iter"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Stats counts the items of a queue, at one revision of etcd.
type Stats struct {
	Ready int // visible
	Later int // not vested yet, or not noticed to have
	Taken int // workers have them
	Dead  int
	// OldestReady is when the item vested that has been visible for longest; zero if
	// none is.
	OldestReady time.Time
	// Paused says who paused the queue, when and why; its At is zero if nobody did.
	Paused Pausing
	// Skipped is how often this process met a value that it could not read.
	Skipped int64
}

// Pausing says who paused a queue, when and why.
type Pausing struct {
	By, Why string
	At      time.Time
}

// Stats counts in one request. It keeps no counters, so it is right after any crash.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	count := func(prefix string) clientv3.Op {
		return clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	}
	resp, err := q.read(ctx, count(q.keys.ready()), count(q.keys.later()), count(q.keys.taken()), count(q.keys.dead()),
		clientv3.OpGet(q.keys.ready(), clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)),
		clientv3.OpGet(q.keys.paused()))
	if err != nil {
		return Stats{}, q.fail("stats", err)
	}
	n := func(i int) int { return int(resp.Responses[i].GetResponseRange().Count) }
	st := Stats{Ready: n(0), Later: n(1), Taken: n(2), Dead: n(3), Skipped: q.skipped.Load()}
	if kvs := resp.Responses[4].GetResponseRange().Kvs; len(kvs) > 0 {
		const rankAndSlash = 17
		if rest := kvs[0].Key[len(q.keys.ready()):]; len(rest) > rankAndSlash {
			if t, err := vestingOf(string(rest[rankAndSlash:])); err == nil {
				st.OldestReady = t
			}
		}
	}
	if kvs := resp.Responses[5].GetResponseRange().Kvs; len(kvs) > 0 {
		if p, err := decode[pausing](kvs[0].Key, kvs[0].Value); err == nil {
			st.Paused = Pausing{By: p.By, Why: p.Why, At: p.At}
		}
	}
	return st, nil
}

// Active returns the names of the queues under the client's prefix that have work, or
// had until a minute ago. It reads one key for each, not their items.
func Active(ctx context.Context, claims *etcdclaims.Client) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if claims.Passthrough() {
			yield("", etcdclaims.ErrPassthrough)
			return
		}
		prefix := keys{top: claims.Prefix() + "queue/"}.actives()
		from := prefix
		for {
			resp, err := claims.Etcd().Get(clientv3.WithRequireLeader(ctx), from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(pageSize))
			if err != nil {
				yield("", err)
				return
			}
			for _, kv := range resp.Kvs {
				s, err := decode[spec](kv.Key, kv.Value)
				if err != nil {
					continue // of a newer version
				}
				if !yield(s.Name, nil) {
					return
				}
			}
			if !resp.More || len(resp.Kvs) == 0 {
				return
			}
			from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		}
	}
}
