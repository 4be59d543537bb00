package queue

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/item"
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

// movedSize bounds what a request needs to move an item.
func movedSize(kv *mvccpb.KeyValue) int { return len(kv.Value) + 8*item.MaxErrorBytes }

// movable is how many items are moved with one request.
func (q *Queue) movable() int64 { return int64(min(itemsPerRequest/2, q.size.items(opsToMove))) }

// drain moves all that was taken under a dead session, in batches, and removes the
// session's entry with the last.
func (q *Queue) drain(ctx context.Context, via *session, id string) (moved int, err error) {
	for {
		got, err := get(ctx, q.claims, q.keys.TakenBy(id), clientv3.WithPrefix(), clientv3.WithLimit(q.movable()))
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
		case q.size.refused(err, len(in.Success)+opsToMove):
			continue
		case err != nil:
			return moved, err
		case !resp.Succeeded:
			return moved, nil // the session is alive after all: it cannot be, but etcd knows
		}
		moved += step.Judge(resp)
	}
}

// slotsOf returns the keys of all slots by their values, if one of the taken items
// cannot be read: then only its slot shows which it is.
func (q *Queue) slotsOf(ctx context.Context, taken []*mvccpb.KeyValue) (map[string]string, error) {
	readable := func(kv *mvccpb.KeyValue) bool { _, err := q.keys.TakenState(kv); return err == nil }
	if q.cfg.MaxTaken == 0 || !slices.ContainsFunc(taken, func(kv *mvccpb.KeyValue) bool { return !readable(kv) }) {
		return nil, nil
	}
	resp, err := q.read(ctx, clientv3.OpGet(q.keys.Slots(), clientv3.WithPrefix()))
	if err != nil {
		return nil, err
	}
	slots := map[string]string{}
	for _, kv := range txn.Kvs(resp, 0) {
		slots[string(kv.Value)] = string(kv.Key)
	}
	return slots, nil
}

func (q *Queue) skipAll(unreadable []error) {
	for _, err := range unreadable {
		q.skip(err)
	}
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
	prefix := q.keys.TakenBy(s.id)
	from := prefix
	for try := 0; ; try++ {
		// Requests that were sent before must not take anything any more.
		resp, err := s.void(ctx, item.Behind(from, prefix, int(q.movable())))
		if err != nil {
			return err
		}
		kvs := resp.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 {
			return nil
		}
		kvs = fitting(kvs, movedSize)
		from = string(kvs[len(kvs)-1].Key) + "\x00"
		kvs = s.nobodys(kvs, prefix)
		if len(kvs) == 0 {
			continue
		}
		slots, err := q.slotsOf(ctx, kvs)
		if err != nil {
			return err
		}
		in, unreadable := item.GiveBack{Keys: q.keys, Taken: kvs, Slots: slots, Now: q.now()}.Build()
		q.skipAll(unreadable)
		_, err = s.send(ctx, in)
		switch {
		case err == nil:
		case q.size.refused(err, len(in.Success)+opsToMove):
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
		_, held, _ := l.snapshot()
		if held.Session != s.id {
			held.Rev = 0
		}
		have[taken{held.State.ID, held.Rev}] = true
	}
	s.mu.Unlock()
	return slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool {
		id := strings.TrimPrefix(string(kv.Key), prefix)
		return have[taken{id, kv.ModRevision}] || have[taken{id, 0}]
	})
}
