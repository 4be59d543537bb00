package queue

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ending is the request that ended a lease.
type ending struct {
	verb string
	by   string // the adopted lease whose verb it was, see Delivery.by
	key  string // where the item went, if its place shows that
	rev  int64
}

// endOf returns how a lease ended, by etcd's own history: the request that deleted
// the taken key, which was put at rev. The verb is "complete" if the item's content was
// removed with it, "" if a program other than this package removed it before or with other
// keys of the queue, and else that of its place. An error means that it cannot be known: etcd
// compacted its history, or does not answer.
func (q *Queue) endOf(ctx context.Context, taken, id string, rev int64) (end ending, err error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), requestTimeout)
	defer cancel()
	for resp := range q.claims.Etcd().Watch(ctx, taken, clientv3.WithRev(rev+1)) {
		if err := resp.Err(); err != nil {
			return end, err
		}
		if len(resp.Events) > 0 {
			end.rev = resp.Events[0].Kv.ModRevision
			break
		}
	}
	if end.rev == 0 {
		return end, fmt.Errorf("no event says how the lease ended: %w", context.Cause(ctx))
	}
	at := clientv3.WithRev(end.rev)
	resp, err := core.Of(q.claims).KV().Txn(ctx).Then(
		clientv3.OpGet(q.keys.item(id), at), clientv3.OpGet(q.keys.place(id), at),
		clientv3.OpGet(q.keys.item(id), clientv3.WithRev(end.rev-1), clientv3.WithCountOnly()),
		clientv3.OpGet(q.keys.spec(), at, clientv3.WithCountOnly())).Commit()
	if err != nil {
		return end, err
	}
	items, places := txn.Kvs(resp, 0), txn.Kvs(resp, 1)
	var note place // of this very request
	if len(places) > 0 && places[0].ModRevision == end.rev {
		if note, err = decode[place](places[0].Key, places[0].Value); err != nil {
			return end, err
		}
	}
	if end.by = note.By; note.Key != "" {
		end.key = q.keys.root + note.Key
	}
	if len(items) == 0 {
		// No request of this package removes a taken key and leaves the queue without its spec.
		if txn.Count(resp, 2) > 0 && txn.Count(resp, 3) > 0 {
			end.verb = "complete"
		}
		return end, nil
	}
	if c, err := decode[content](items[0].Key, items[0].Value); err == nil && c.Done != nil && items[0].ModRevision == end.rev {
		end.verb, end.by = "complete", c.Done.By
		return end, nil
	}
	if end.verb = note.Verb; end.verb == "" {
		end.verb = "heartbeat" // it was moved to another session
	}
	return end, nil
}

// left returns the state in which the request that ended a lease left the item.
func (q *Queue) left(ctx context.Context, end ending) (state, error) {
	resp, err := q.read(ctx, clientv3.OpGet(end.key, clientv3.WithRev(end.rev)))
	if err != nil {
		return state{}, err
	}
	kvs := txn.Kvs(resp, 0)
	if len(kvs) == 0 {
		return state{}, fmt.Errorf("no key %q at revision %d", end.key, end.rev)
	}
	return decodeState(kvs[0])
}
