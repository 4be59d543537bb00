package queue

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// recoverDead makes the items of sessions that are over wait again, or buries those
// that have had all their attempts. It returns how many sessions it saw that are
// alive, and how many items it moved. Any number of processes may do it at once: each item is moved
// under the condition that it is where it was, and that its session's claim is gone. After that
// nothing can be taken under that session.
//
// Items below taken/ of a session that has no entry in worker/ are recovered, too.
// This program leaves nothing of that kind, but it would keep the queue from ever
// being empty.
func (q *store) recoverDead(ctx context.Context, via *session) (alive, moved int, err error) {
	lives, err := get(ctx, q.claims, q.keys.Workers(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, 0, err
	}
	var ids []string
	for _, kv := range lives.Kvs {
		ids = append(ids, strings.TrimPrefix(string(kv.Key), q.keys.Workers()))
	}
	slices.SortFunc(ids, func(a, b string) int { return strings.Compare(q.keys.TakenBy(a), q.keys.TakenBy(b)) })
	from := q.keys.Taken() // behind the items of the session before
	for some := range slices.Chunk(ids, itemsPerRequest/2) {
		begin := from
		var ops txn.Ops
		strays, claims := make([]txn.Op, len(some)), make([]txn.Op, len(some))
		for i, id := range some {
			strays[i] = ops.Add(between(from, q.keys.TakenBy(id)))
			claims[i] = ops.Add(clientv3.OpGet(q.keys.Own(id), clientv3.WithCountOnly()))
			from = clientv3.GetPrefixRangeEnd(q.keys.TakenBy(id))
		}
		answers, err := q.readAll(ctx, ops)
		if err != nil {
			return alive, moved, err
		}
		for i, id := range some {
			if answers.Count(strays[i]) > 0 {
				n, err := q.recoverStrays(ctx, via, begin, q.keys.TakenBy(id))
				if moved += n; err != nil {
					return alive, moved, err
				}
			}
			begin = clientv3.GetPrefixRangeEnd(q.keys.TakenBy(id))
			if answers.Count(claims[i]) > 0 {
				alive++
				continue
			}
			n, err := q.recoverSession(ctx, via, id)
			if moved += n; err != nil {
				return alive, moved, err
			}
		}
	}
	n, err := q.recoverStrays(ctx, via, from, clientv3.GetPrefixRangeEnd(q.keys.Taken()))
	return alive, moved + n, err
}

// between reads the first key of a range.
func between(from, end string) clientv3.Op {
	return clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithKeysOnly())
}

// recoverSession makes the items of a session that is over wait again, and returns how
// many it moved.
func (q *store) recoverSession(ctx context.Context, via *session, id string) (n int, err error) {
	n, err = q.drain(ctx, via, id)
	if n > 0 {
		q.log.Warn("recovered items of a dead worker", zap.String("session", id), zap.Int("items", n))
	}
	return n, err
}

// recoverStrays recovers what is in a range below taken/ in which no session of
// worker/ has items: all of the sessions that the keys name, none of which is a living
// one whose entry was not seen, because the session's claim must be gone. A key that
// names no session is removed.
func (q *store) recoverStrays(ctx context.Context, via *session, from, end string) (moved int, err error) {
	for {
		resp, err := q.read(ctx, between(from, end))
		if err != nil {
			return moved, err
		}
		kvs := txn.Kvs(resp, 0)
		if len(kvs) == 0 {
			return moved, nil
		}
		key := string(kvs[0].Key)
		if id, _, ok := strings.Cut(strings.TrimPrefix(key, q.keys.Taken()), "/"); ok {
			n, err := q.recoverSession(ctx, via, id)
			if moved += n; err != nil {
				return moved, err
			}
			from = clientv3.GetPrefixRangeEnd(q.keys.TakenBy(id))
			continue
		}
		if _, err := via.send(ctx, item.Sweep(kvs[0])); err != nil {
			return moved, err
		}
		q.log.Warn("removed a key that is not of an item", zap.String("etcd_key", key))
		from = key + "\x00"
	}
}

// drain moves all that was taken under a dead session, in batches, and removes the
// session's entry with the last.
func (q *store) drain(ctx context.Context, via *session, id string) (moved int, err error) {
	for {
		got, err := get(ctx, q.claims, q.keys.TakenBy(id), clientv3.WithPrefix(), clientv3.WithLimit(int64(q.size.movable())))
		if err != nil {
			return moved, err
		}
		step := item.Recover{Keys: q.keys, Session: id, Taken: fitting(got.Kvs, movedSize), Now: q.now()}
		if len(step.Taken) == 0 {
			_, err := via.send(ctx, step.Settle())
			return moved, err
		}
		if step.Slots, err = q.slotsOf(ctx, step.Taken); err != nil {
			return moved, err
		}
		in, unreadable := step.Build()
		q.skipAll(unreadable)
		resp, err := via.send(ctx, in)
		switch {
		case q.size.refusedItems(err, len(step.Taken), opsToMove):
			continue
		case err != nil:
			return moved, err
		case !resp.Succeeded:
			return moved, nil // the session is alive after all: it cannot be, but etcd knows
		}
		moved += step.Judge(resp)
	}
}

// recoverEnded returns how many items workers had at a revision, 0 is now, and recovers what
// sessions have left that had ended by then. While there is no keeper, it makes items visible whose
// turn has come. It reports whether to look for visible items again: there were such sessions or
// items, or etcd has compacted that revision.
// Two counts show that a session has died: it has its entry in worker/ for as long as its claim
// otherwise. They differ for a moment, too, while a session is closed.
func (q *holder) recoverEnded(ctx context.Context, rev int64) (taken int, again bool, err error) {
	count := func(prefix string) clientv3.Op {
		return clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithRev(rev))
	}
	resp, err := q.read(ctx, count(q.keys.Own("")), count(q.keys.Workers()), count(q.keys.Taken()),
		count(q.keys.Behind()), count(q.keys.KeeperClaim()))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		taken, _, err = q.recoverEnded(ctx, 0) // now
		return taken, true, err
	case err != nil:
		return 0, false, err
	}
	taken = int(txn.Count(resp, 2))
	if behind := txn.Count(resp, 3); behind > 0 && txn.Count(resp, 4) == 0 {
		if again, err = q.lanes.anyTurn(ctx, behind); err != nil {
			q.log.Debug("partition keys not looked at", zap.Error(err))
		}
	}
	if txn.Count(resp, 0) == txn.Count(resp, 1) {
		return taken, again, nil
	}
	s, err := q.sessions.live(ctx)
	if err != nil {
		return 0, false, err
	}
	_, _, err = q.recoverDead(ctx, s)
	return taken, err == nil, err
}
