package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
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
func (q *Queue) recoverDead(ctx context.Context, via *session) (alive, moved int, err error) {
	lives, err := get(ctx, q.claims, q.keys.workers(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, 0, err
	}
	var ids []string
	for _, kv := range lives.Kvs {
		ids = append(ids, strings.TrimPrefix(string(kv.Key), q.keys.workers()))
	}
	slices.SortFunc(ids, func(a, b string) int { return strings.Compare(q.keys.takenBy(a), q.keys.takenBy(b)) })
	from := q.keys.taken() // behind the items of the session before
	for some := range slices.Chunk(ids, itemsPerRequest/2) {
		begin := from
		var ops txn.Ops
		strays, claims := make([]txn.Op, len(some)), make([]txn.Op, len(some))
		for i, id := range some {
			strays[i] = ops.Add(between(from, q.keys.takenBy(id)))
			claims[i] = ops.Add(clientv3.OpGet(q.ownKey(id), clientv3.WithCountOnly()))
			from = clientv3.GetPrefixRangeEnd(q.keys.takenBy(id))
		}
		answers, err := q.readAll(ctx, ops)
		if err != nil {
			return alive, moved, err
		}
		for i, id := range some {
			if answers.Count(strays[i]) > 0 {
				n, err := q.recoverStrays(ctx, via, begin, q.keys.takenBy(id))
				if moved += n; err != nil {
					return alive, moved, err
				}
			}
			begin = clientv3.GetPrefixRangeEnd(q.keys.takenBy(id))
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
	n, err := q.recoverStrays(ctx, via, from, clientv3.GetPrefixRangeEnd(q.keys.taken()))
	return alive, moved + n, err
}

// between reads the first key of a range.
func between(from, end string) clientv3.Op {
	return clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithKeysOnly())
}

// recoverSession makes the items of a session that is over wait again, and returns how
// many it moved.
func (q *Queue) recoverSession(ctx context.Context, via *session, id string) (n int, err error) {
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
func (q *Queue) recoverStrays(ctx context.Context, via *session, from, end string) (moved int, err error) {
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
		if id, _, ok := strings.Cut(strings.TrimPrefix(key, q.keys.taken()), "/"); ok {
			n, err := q.recoverSession(ctx, via, id)
			if moved += n; err != nil {
				return moved, err
			}
			from = clientv3.GetPrefixRangeEnd(q.keys.takenBy(id))
			continue
		}
		if _, err := via.claim.Txn(ctx).If(unmoved(key, kvs[0].ModRevision)).Then(clientv3.OpDelete(key)).Commit(); err != nil {
			return moved, err
		}
		q.log.Warn("removed a key that is not of an item", zap.String("etcd_key", key))
		from = key + "\x00"
	}
}

// ownKey returns the key of the claim of a session.
func (q *Queue) ownKey(session string) string {
	return q.claims.OwnKey(q.keys.sessionKey(session))
}

// movedSize bounds what a request needs to move an item.
func movedSize(kv *mvccpb.KeyValue) int { return len(kv.Value) + 8*maxErrorBytes }

// movable is how many items are moved with one request.
func (q *Queue) movable() int64 { return int64(min(itemsPerRequest/2, q.size.items(opsToMove))) }

// drain moves all that was taken under a dead session, in batches, and removes the
// session's entry with the last.
func (q *Queue) drain(ctx context.Context, via *session, id string) (moved int, err error) {
	own, prefix := q.ownKey(id), q.keys.takenBy(id)
	for {
		got, err := get(ctx, q.claims, prefix, clientv3.WithPrefix(), clientv3.WithLimit(q.movable()))
		if err != nil {
			return moved, err
		}
		got.Kvs = fitting(got.Kvs, movedSize)
		if len(got.Kvs) == 0 {
			_, err := via.claim.Txn(ctx).If(absent(own), absent(prefix).WithPrefix()).Then(clientv3.OpDelete(q.keys.worker(id)), clientv3.OpDelete(q.keys.idle(id))).Commit()
			return moved, err
		}
		slots, err := q.slotsOf(ctx, got.Kvs)
		if err != nil {
			return moved, err
		}
		var ops []clientv3.Op
		for _, kv := range got.Kvs {
			ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{unmoved(string(kv.Key), kv.ModRevision)}, q.recovered(kv, slots), nil))
		}
		resp, err := via.claim.Txn(ctx).If(absent(own)).Then(ops...).Commit()
		switch {
		case q.size.refused(err, len(ops)+opsToMove):
			continue
		case err != nil:
			return moved, err
		case !resp.Succeeded:
			return moved, nil // the session is alive after all: it cannot be, but etcd knows
		}
		for _, r := range resp.Responses {
			if r.GetResponseTxn().Succeeded {
				moved++
			}
		}
	}
}

// recovered is the operations that move an item away from a dead session.
func (q *Queue) recovered(kv *mvccpb.KeyValue, slots map[string]string) []clientv3.Op {
	now := q.now()
	st, err := q.takenState(kv)
	if err != nil {
		q.skip(err)
		return q.buryBare(kv, slots, now)
	}
	ops := q.untaken(kv, st.ID)
	if st.Slot > 0 {
		ops = append(ops, clientv3.OpDelete(q.keys.slot(st.Slot)))
	}
	fence := keyspace.Fence(st.Epoch, kv.ModRevision)
	st.ended(Attempt{Number: st.Attempts, Owner: st.Owner, Fence: fence, Ending: attemptLost, Error: "the worker's process died or lost its session", At: now.UTC()})
	if st.Attempts >= st.Max {
		return append(ops, q.bury(st, place{Verb: "lost", Fence: fence}, "lost with its worker in its last attempt", now)...)
	}
	return append(ops, q.uncover(st, place{Verb: "lost", Fence: fence}, now)...)
}

// untaken is the operations that remove the key of a taken item, and the worker's note: the
// lease of etcd that the note is on can outlast the session.
func (q *Queue) untaken(kv *mvccpb.KeyValue, id string) []clientv3.Op {
	return []clientv3.Op{clientv3.OpDelete(string(kv.Key)), clientv3.OpDelete(q.keys.note(id))}
}

// takenState decodes the state of a taken item. The state of another item, copied here
// by an operator, cannot be read: its worker may be alive.
func (q *Queue) takenState(kv *mvccpb.KeyValue) (state, error) {
	st, err := decodeState(kv)
	if err != nil {
		return state{}, err
	}
	if _, id, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), q.keys.taken()), "/"); id != st.ID {
		return state{}, fmt.Errorf("%s has the state of item %q", kv.Key, st.ID)
	}
	return st, nil
}

// buryBare is the operations that put an item whose state cannot be read among the dead
// letters, unchanged. People and newer versions of this program can read it there. Left
// where it is it would keep its slot and its session for ever.
func (q *Queue) buryBare(kv *mvccpb.KeyValue, slots map[string]string, now time.Time) []clientv3.Op {
	owner := strings.TrimPrefix(string(kv.Key), q.keys.taken())
	_, id, _ := strings.Cut(owner, "/")
	to := q.keys.bareAt(now, id)
	ops := append(q.untaken(kv, id), clientv3.OpPut(to, string(kv.Value)),
		clientv3.OpPut(q.keys.place(id), encode(place{Version: valueVersion, Key: to[len(q.keys.root):], Verb: "lost"})))
	if slot := slots[owner]; slot != "" {
		ops = append(ops, clientv3.OpDelete(slot))
	}
	return ops
}

// slotsOf returns the keys of all slots by their values, if one of the taken items
// cannot be read: then only its slot shows which it is.
func (q *Queue) slotsOf(ctx context.Context, taken []*mvccpb.KeyValue) (map[string]string, error) {
	readable := func(kv *mvccpb.KeyValue) bool { _, err := q.takenState(kv); return err == nil }
	if q.cfg.MaxTaken == 0 || !slices.ContainsFunc(taken, func(kv *mvccpb.KeyValue) bool { return !readable(kv) }) {
		return nil, nil
	}
	resp, err := q.read(ctx, clientv3.OpGet(q.keys.slots(), clientv3.WithPrefix()))
	if err != nil {
		return nil, err
	}
	slots := map[string]string{}
	for _, kv := range txn.Kvs(resp, 0) {
		slots[string(kv.Value)] = string(kv.Key)
	}
	return slots, nil
}

// skip counts a value that cannot be read, and logs some of them: each look finds
// them again.
func (q *Queue) skip(err error) {
	if n := q.skipped.Add(1); n <= 10 || n%1000 == 0 {
		q.log.Warn("skipped a value", zap.Error(err), zap.Int64("skipped", n))
	}
}

// reconcile gives back items that were taken by a request whose outcome could not be
// learnt at the time.
func (q *Queue) reconcile(ctx context.Context, s *session) error {
	s.mu.Lock()
	unsure := s.unsure
	s.mu.Unlock()
	if unsure == 0 {
		return nil
	}
	if err := q.giveBack(ctx, s); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsure == unsure { // else items that were doubted meanwhile are for the next time
		s.unsure = 0
	}
	return nil
}

// giveBack makes items wait again that are taken under a session of this process and
// have no live lease. Their attempt does not count.
func (q *Queue) giveBack(ctx context.Context, s *session) error {
	prefix := q.keys.takenBy(s.id)
	from := prefix
	for try := 0; ; try++ {
		// Requests that were sent before must not take anything any more.
		resp, err := s.void(ctx, clientv3.OpGet(from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(q.movable())))
		if err != nil {
			return err
		}
		kvs := txn.Kvs(resp, 0)
		if len(kvs) == 0 {
			return nil
		}
		kvs = fitting(kvs, movedSize)
		from = string(kvs[len(kvs)-1].Key) + "\x00"
		kvs = s.nobodys(kvs, prefix)
		slots, err := q.slotsOf(ctx, kvs)
		if err != nil {
			return err
		}
		now := q.now()
		var ops []clientv3.Op
		for _, kv := range kvs {
			st, err := q.takenState(kv)
			if err != nil {
				q.skip(err)
				ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{unmoved(string(kv.Key), kv.ModRevision)}, q.buryBare(kv, slots, now), nil))
				continue
			}
			then := q.untaken(kv, st.ID)
			if st.Slot > 0 {
				then = append(then, clientv3.OpDelete(q.keys.slot(st.Slot)))
			}
			st.Attempts--
			fence := keyspace.Fence(st.Epoch, kv.ModRevision)
			ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{unmoved(string(kv.Key), kv.ModRevision)},
				append(then, q.uncover(st, place{Verb: "release", Fence: fence}, now)...), nil))
		}
		if len(ops) == 0 {
			continue
		}
		_, err = s.claim.Txn(ctx).Then(ops...).Commit()
		switch {
		case err == nil:
		case q.size.refused(err, len(ops)+opsToMove):
			from = prefix
		case errors.Is(err, etcdclaims.ErrLost), !passing(err):
			return err
		case !retry.Pause(ctx, try):
			return err
		default:
			from = prefix // from the start: it may or may not have been done
		}
	}
}

// nobodys returns those taken keys of which this process has no lease.
func (s *session) nobodys(kvs []*mvccpb.KeyValue, prefix string) []*mvccpb.KeyValue {
	type taken struct {
		id  string
		rev int64 // 0: any, it is being moved here
	}
	s.mu.Lock()
	have := make(map[taken]bool, len(s.leases))
	for l := range s.leases {
		_, sid, st, rev, _ := l.snapshot()
		if sid != s.id {
			rev = 0
		}
		have[taken{st.ID, rev}] = true
	}
	s.mu.Unlock()
	return slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool {
		id := strings.TrimPrefix(string(kv.Key), prefix)
		return have[taken{id, kv.ModRevision}] || have[taken{id, 0}]
	})
}
