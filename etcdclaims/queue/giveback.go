package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// reconcile gives back items that were taken by a request whose outcome could not be
// learnt at the time.
func (s *session) reconcile(ctx context.Context) error {
	s.mu.Lock()
	unsure := s.unsure
	s.mu.Unlock()
	if unsure == 0 {
		return nil
	}
	if err := s.giveBack(ctx); err != nil {
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
func (s *session) giveBack(ctx context.Context) error {
	q := s.q
	prefix := q.keys.TakenBy(s.id)
	from := prefix
	for try := 0; ; try++ {
		// Requests that were sent before must not take anything any more.
		resp, err := s.void(ctx, item.Behind(from, prefix, q.size.movable()))
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
		case q.size.refusedItems(err, len(kvs), opsToMove):
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

// compareEvery is how often a session compares its leases with etcd.
const compareEvery = time.Minute

// compareOften compares the leases with etcd until the session ends.
func (s *session) compareOften() {
	t := time.NewTimer(compareEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			begun, took := clock.Mono(), time.Duration(0)
			if err := s.compare(s.q.ctx); err != nil {
				s.q.log.Debug("items of a queue session not read", zap.String("session", s.id), zap.Error(err))
			} else {
				took = time.Since(begun)
			}
			t.Reset(max(rest(took, compareEvery, mostHidden)-time.Since(begun), 0))
		case <-s.claim.Done():
			return
		case <-s.q.ctx.Done():
			return
		}
	}
}

// compare ends leases whose items another process with the same handle has ended or moved, and
// has items given back that no lease is of: a restore from a snapshot brings back items that were
// completed.
func (s *session) compare(ctx context.Context) error {
	gone := s.taken()
	prefix := s.q.keys.TakenBy(s.id)
	var kvs []*mvccpb.KeyValue
	for page, err := range list(ctx, s.q.claims, clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()), 1000) {
		if err != nil {
			return err
		}
		kvs = append(kvs, page.Kvs...)
	}
	for _, kv := range kvs {
		delete(gone, takenAs{strings.TrimPrefix(string(kv.Key), prefix), kv.ModRevision})
	}
	for was, l := range gone {
		if was.rev > 0 {
			l.missed(ctx, was.rev)
		}
	}
	s.mu.Lock()
	busy := s.busy > 0 // what that takes has no lease yet
	s.mu.Unlock()
	if !busy && len(s.nobodys(kvs, prefix)) > 0 {
		s.doubt()
	}
	return nil
}

// takenAs is a taken key of an item.
type takenAs struct {
	id  string
	rev int64 // 0: any, it is being moved here
}

// taken returns the leases by their keys.
func (s *session) taken() map[takenAs]lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := make(map[takenAs]lease, len(s.leases))
	for l := range s.leases {
		_, held, _ := l.snapshot()
		if held.Session != s.id {
			held.Rev = 0
		}
		have[takenAs{held.State.ID, held.Rev}] = l
	}
	return have
}

// nobodys returns those taken keys of which this process has no lease.
func (s *session) nobodys(kvs []*mvccpb.KeyValue, prefix string) []*mvccpb.KeyValue {
	have := s.taken()
	return slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool {
		id := strings.TrimPrefix(string(kv.Key), prefix)
		return have[takenAs{id, kv.ModRevision}] != nil || have[takenAs{id, 0}] != nil
	})
}

// slotsOf returns the keys of all slots by their values, if one of the taken items
// cannot be read: then only its slot shows which it is.
func (q *store) slotsOf(ctx context.Context, taken []*mvccpb.KeyValue) (map[string]string, error) {
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
