package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Enqueue puts an item into the queue. It returns false, and changes nothing, if the
// queue has an item of this id, or completed one within Config.Retention. If the id is one
// of a dead letter, it returns a DeadLetterError; the option OverDead replaces the dead
// letter.
//
// Errors: DeadLetterError, ErrFull, ErrConfig, etcdclaims.ErrLost if the leases of this process
// are revoked again and again, and those of etcdclaims.Client.TryAcquire. If the
// error matches etcdclaims.ErrUnknown the item may have been enqueued. Enqueuing the same
// Item again is safe while the item is in the queue. If the item has the option ID, it is
// also safe for Config.Retention after it was completed. While etcd does not answer,
// Enqueue fails within half a minute, even if ctx lasts longer.
func (q *Queue) Enqueue(ctx context.Context, item Item) (added bool, err error) {
	n, err := q.EnqueueAll(ctx, []Item{item})
	return n == 1, err
}

// EnqueueAll puts items into the queue, many with each request. It returns how many were
// added: items that the queue had before do not count. Of several items with one id, only
// the first is added. Items of one priority and one vesting time are claimed in the order
// in which they are given. Delay counts from the call. A DeadLetterError names the items
// that it has not added for that reason; it has added the others. After an error some items may have been enqueued. Enqueuing all of
// them again is as safe as with Enqueue.
func (q *Queue) EnqueueAll(ctx context.Context, items []Item) (added int, err error) {
	for _, it := range items {
		if err := it.check(); err != nil {
			return 0, q.fail("enqueue", err)
		}
	}
	if err := q.closed(); err != nil {
		return 0, q.fail("enqueue", err)
	}
	if err := q.quota.room(q); err != nil {
		return 0, q.fail("enqueue", err)
	}
	defer q.await()()
	e := &enqueuing{now: q.now()}
	for items = sequenced(items); len(items) > 0; {
		some := fitting(items[:min(len(items), q.size.items(opsToEnqueue))], Item.size)
		n, err := q.enqueue(ctx, some, e)
		added += n
		switch {
		case err == nil:
			items = items[len(some):]
		case !q.size.refused(err, len(some)+1+opsToEnqueue): // else no item was enqueued
			return added, q.fail("enqueue", err)
		}
	}
	replaced, err := q.overDead(ctx, e)
	return added + replaced, err
}

// sequenced returns the items without those whose id an earlier one has, each behind the one
// before it in the order of the queue, if their priorities and vesting times are equal.
func sequenced(items []Item) []Item {
	items = distinct(items, Item.ID)
	for i := range items {
		items[i].seq = newSeq()
	}
	return items
}

// distinct returns the items without those whose id an earlier one has. etcd puts no key
// twice in one transaction.
func distinct[T any](items []T, id func(T) string) []T {
	ids := make(map[string]bool, len(items))
	return slices.DeleteFunc(slices.Clone(items), func(it T) bool {
		again := ids[id(it)]
		ids[id(it)] = true
		return again
	})
}

// enqueue puts in some items, in one transaction.
func (q *Queue) enqueue(ctx context.Context, items []Item, e *enqueuing) (added int, err error) {
	for try, begun := 0, clock.Mono(); len(items) > 0; try++ {
		s, err := q.sessions.get(ctx, q.cfg.TTL)
		if err != nil {
			return added, err
		}
		room, full, err := q.room(ctx)
		if err != nil {
			return added, err
		}
		if q.cfg.MaxWaiting > 0 && room < len(items) {
			some, err := q.partly(ctx, items, room, e)
			return added + some, err
		}
		since := s.lastSeen()
		some, done, err := q.send(ctx, s, items, full, e)
		switch {
		case done:
			return added + some, nil
		case err == nil: // the generation is another, or the queue has changed
		case errors.Is(err, etcdclaims.ErrUnknown):
			left, lerr := q.notPut(ctx, s, items, since)
			if lerr != nil {
				return added, fmt.Errorf("%w (looking it up: %w)", err, lerr)
			}
			added += len(items) - len(left)
			items = left
			continue
		case errors.Is(err, etcdclaims.ErrLost): // another session does it
		case txn.IsTransient(err) && time.Since(begun) < patience: // refused before it was proposed
		default:
			return added, err
		}
		if !retry.Pause(ctx, try) {
			return added, context.Cause(ctx)
		}
	}
	return added, nil
}

// send puts items, under the condition that the queue has room for them, and returns how
// many of them were not there. done is false if the request was refused as a whole, or
// failed. One item alone may share a round trip with those of other callers.
func (q *Queue) send(ctx context.Context, s *session, items []Item, full []clientv3.Cmp, e *enqueuing) (added int, done bool, err error) {
	if len(items) == 1 && full == nil {
		op, at := q.put(items[0], e.now)
		resp, again, err := s.put(ctx, items[0].id, op)
		switch {
		case err != nil || again:
		case resp.Succeeded:
			added = 1
		default:
			e.there(q, items[0], txn.ReplyIn(resp).Kvs(at))
		}
		return added, err == nil && !again, err
	}
	ops := txn.Ops{q.activate()}
	puts, places := make([]txn.Op, len(items)), make([]txn.Op, len(items))
	for i, it := range items {
		op, at := q.put(it, e.now)
		puts[i], places[i] = ops.Add(op), at
	}
	if full != nil {
		ops = append(ops, clientv3.OpPut(q.keys.bound(), encode(map[string]any{"v": valueVersion})))
	}
	resp, again, err := s.commit(ctx, full, ops, nil)
	if err != nil || again || !resp.Succeeded {
		return 0, false, err
	}
	for i, it := range items {
		if put := txn.ReplyIn(resp).Inner(puts[i]); put.Succeeded {
			added++
		} else {
			e.there(q, it, put.Kvs(places[i]))
		}
	}
	return added, true, nil
}

// notPut returns those items that a request of unknown outcome did not enqueue, and
// never will. An item that was put may be completed already, so it is not enough to
// look for it: the history since a revision before that request shows whether it was.
// A mark behind each item's key shows where the history ends. etcd drops it after a
// minute.
func (q *Queue) notPut(ctx context.Context, s *session, items []Item, since int64) (left []Item, err error) {
	lease, err := q.markLease(ctx)
	if err != nil {
		return nil, err
	}
	var marks []clientv3.Op
	for _, it := range items {
		marks = append(marks, clientv3.OpPut(q.keys.mark(it.id), "", clientv3.WithLease(lease)))
	}
	resp, err := s.void(ctx, marks...)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		put, err := q.putBetween(ctx, it, since, resp.Header.Revision)
		if err != nil {
			return nil, err
		}
		if !put {
			left = append(left, it)
		}
	}
	return left, nil
}

// markLease returns a lease for marks. It fails after patience without an answer.
func (q *Queue) markLease(ctx context.Context) (lease clientv3.LeaseID, err error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), patience)
	defer cancel()
	err = retry.Do(ctx, passing, func() (err error) {
		short, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		lease, err = core.Of(q.claims).GrantLease(short, time.Minute)
		return err
	})
	return lease, err
}

// putBetween reports whether an item was enqueued after a revision and before another
// one, at which its mark was put: this very item, not another one with its id.
func (q *Queue) putBetween(ctx context.Context, it Item, since, end int64) (bool, error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), requestTimeout)
	defer cancel()
	key := q.keys.item(it.id)
	for resp := range q.claims.Etcd().Watch(ctx, key, clientv3.WithRange(q.keys.mark(it.id)+"\x00"), clientv3.WithRev(since+1)) {
		if err := resp.Err(); err != nil {
			return false, err
		}
		for _, ev := range resp.Events {
			switch {
			case ev.Kv.ModRevision >= end:
				return false, nil
			case string(ev.Kv.Key) == key:
				if c, err := decode[content](ev.Kv.Key, ev.Kv.Value); ev.IsCreate() && err == nil && c.Seq == it.seq {
					return true, nil
				}
			}
		}
	}
	return false, fmt.Errorf("the history of the item cannot be read: %w", context.Cause(ctx))
}

// partly enqueues the items that there is room for, one by one.
func (q *Queue) partly(ctx context.Context, items []Item, room int, e *enqueuing) (added int, err error) {
	for i, it := range items {
		if room <= 0 {
			// An item that is there already needs no room.
			resp, err := q.read(ctx, clientv3.OpGet(q.keys.place(it.id)), clientv3.OpGet(q.keys.item(it.id), clientv3.WithCountOnly()))
			if err != nil {
				return added, err
			}
			if txn.Count(resp, 1) > 0 {
				e.there(q, it, txn.Kvs(resp, 0))
				continue
			}
			return added, fmt.Errorf("%w: %d items wait; item %d of %d was not enqueued", ErrFull, q.cfg.MaxWaiting, i+1, len(items))
		}
		n, err := q.enqueue(ctx, []Item{it}, e)
		added += n
		room -= n
		if err != nil {
			return added, err
		}
	}
	return added, nil
}

// room returns how many items may still be enqueued, and the condition under which
// that stays true: nothing was enqueued since, but by Op. Items that leave only make room, and
// those that come back from workers and dead letters do so whether or not there is room. A
// condition on the items themselves would make etcd read all of them before the next
// request.
func (q *Queue) room(ctx context.Context) (int, []clientv3.Cmp, error) {
	if q.cfg.MaxWaiting == 0 {
		return 0, nil, nil
	}
	resp, err := q.read(ctx,
		clientv3.OpGet(q.keys.ready(), clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpGet(q.keys.later(), clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpGet(q.keys.bound(), clientv3.WithKeysOnly()))
	if err != nil {
		return 0, nil, err
	}
	waiting := txn.Count(resp, 0) + txn.Count(resp, 1)
	rev := int64(0)
	if kvs := txn.Kvs(resp, 2); len(kvs) > 0 {
		rev = kvs[0].ModRevision
	}
	return q.cfg.MaxWaiting - int(waiting), []clientv3.Cmp{unmoved(q.keys.bound(), rev)}, nil
}

// activate notes that the queue has work, if that is not noted.
func (q *Queue) activate() clientv3.Op {
	key := q.keys.active()
	return clientv3.OpTxn([]clientv3.Cmp{absent(key)}, []clientv3.Op{clientv3.OpPut(key, encode(spec{Version: valueVersion, Name: q.cfg.Name}))}, nil)
}

// put is the operation that enqueues an item, unless its id is there. Else it reads the item's
// place, by at.
func (q *Queue) put(it Item, now time.Time) (op clientv3.Op, at txn.Op) {
	key := q.keys.item(it.id)
	c, st := q.begun(it, now)
	var els txn.Ops
	at = els.Add(clientv3.OpGet(q.keys.place(it.id)))
	return clientv3.OpTxn([]clientv3.Cmp{absent(key)},
		[]clientv3.Op{clientv3.OpPut(key, encode(c)), clientv3.OpPut(q.indexKey(st, now), encode(st))}, els), at
}

// begun returns the values of an item that is enqueued.
func (q *Queue) begun(it Item, now time.Time) (content, state) {
	vesting := it.vesting
	if vesting.IsZero() {
		vesting = now.Add(it.delay)
	}
	st := state{Version: valueVersion, ID: it.id, Given: it.given, Seq: it.seq, Priority: it.priority, Vesting: vesting.UTC(), Max: it.max}
	if st.Max == 0 {
		st.Max = q.cfg.MaxAttempts
	}
	return content{
		Version: valueVersion, Topic: it.topic, Payload: it.payload, Given: it.given, Seq: it.seq,
		Rank: rank(it.priority, q.cfg.HigherFirst), Vesting: st.Vesting, Enqueued: now.UTC(),
	}, st
}

// Op returns the operation that enqueues items, for a transaction of the caller's
// own: with the caller's other writes (an outbox), or in work.Work.Complete or
// [Delivery.Complete]. Op sends nothing to etcd. It neither checks nor stores the queue's
// configuration; Enqueue, Claim and Open do. Delay counts from the call of Op.
//
// If the transaction is carried out twice the items are enqueued once, while the item is
// in the queue or its id is remembered (Config.Retention). So give each item an ID, and
// after a lost reply commit the same transaction again, with the same Op.
//
// A transaction can contain one Op of each queue, with up to 64 items. If etcd's
// --max-txn-ops is N, below its default of 128, the limit is N - 4 items, minus the number
// of other operations in the transaction. Op enforces neither Config.MaxWaiting nor
// Config.SpaceReserve. It does not enqueue an id that is a dead letter, and ignores
// OverDead.
func (q *Queue) Op(items ...Item) (clientv3.Op, error) {
	if len(items) == 0 || len(items) > itemsPerRequest {
		return clientv3.Op{}, q.fail("enqueue", fmt.Errorf("%d items in one operation: want 1 to %d", len(items), itemsPerRequest))
	}
	ops := []clientv3.Op{q.activate()}
	now := q.now()
	for _, it := range sequenced(items) {
		if err := it.check(); err != nil {
			return clientv3.Op{}, q.fail("enqueue", err)
		}
		op, _ := q.put(it, now)
		ops = append(ops, op)
	}
	return clientv3.OpTxn(nil, ops, nil), nil
}
