package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Enqueue puts an item into the queue. It returns false, and changes nothing, if the
// queue has an item of this id, or completed one within Config.Retention; see Debounce for an
// exception. If the id is one of a dead letter, it returns a DeadLetterError; the option
// OverDead replaces the dead letter.
//
// Errors: DeadLetterError, ErrFull, ErrConfig, etcdclaims.ErrLost if the leases of this process
// are revoked again and again, and those of etcdclaims.Client.TryAcquire. If the
// error matches etcdclaims.ErrUnknown the item may have been enqueued. Enqueuing the same
// Item again is safe while the item is in the queue. If the item has the option ID, it is
// also safe for Config.Retention after it was completed. While etcd does not answer,
// Enqueue fails within half a minute, even if ctx lasts longer.
func (q *Queue) Enqueue(ctx context.Context, it Item) (added bool, err error) {
	n, err := q.EnqueueAll(ctx, []Item{it})
	return n == 1, err
}

// EnqueueAll puts items into the queue, many with each request. It returns how many were added: items that the
// queue had before do not count. Of several items with one id, only the first is added, with the option
// Debounce with the payload of the last. Items of one priority and one vesting time are claimed in the order
// in which they are given. Delay counts from the call. A DeadLetterError names the items that it has not added
// for that reason; it has added the others. After an error some items may have been enqueued. Enqueuing all of
// them again is as safe as with Enqueue.
func (q *Queue) EnqueueAll(ctx context.Context, items []Item) (added int, err error) {
	for _, it := range items {
		if err := q.checkItem(it); err != nil {
			return 0, q.fail("enqueue", err)
		}
	}
	if err := q.closed(); err != nil {
		return 0, q.fail("enqueue", err)
	}
	if err := q.quota.room(q.store); err != nil {
		return 0, q.fail("enqueue", err)
	}
	defer q.await()()
	e := &enqueuing{now: q.now()}
	defer func(items []Item) {
		for _, it := range items {
			q.lanes.noteKey(it.key)
		}
	}(items)
	for items = sequenced(items); len(items) > 0; {
		some := fitting(items[:min(len(items), q.size.items(opsToEnqueue))], Item.size)
		n, err := q.enqueue(ctx, some, e)
		added += n
		switch {
		case err == nil:
			items = items[len(some):]
		case !q.size.refusedItems(err, len(some), opsToEnqueue): // else no item was enqueued
			return added, q.fail("enqueue", err)
		}
	}
	replaced, err := q.overHad(ctx, e)
	return added + replaced, err
}

// checkItem reports whether the item can be enqueued into the queue.
func (q *Queue) checkItem(it Item) error {
	if err := it.check(); err != nil {
		return err
	}
	if it.unique.period > max(q.cfg.Retention, 0) {
		return fmt.Errorf("item %q: unique for %v, but completed items are remembered for %v; see Config.Retention",
			it.id, it.unique.period, max(q.cfg.Retention, 0))
	}
	return nil
}

// sequenced returns the items without those whose id an earlier one has, each behind the one
// before it in the order of the queue, if their priorities and vesting times are equal. With the option
// Debounce, the first has the payload of the last.
func sequenced(items []Item) []Item {
	last := make(map[string][]byte)
	for _, it := range items {
		if it.debounce.asked {
			last[it.id] = it.payload
		}
	}
	items = distinct(items, Item.ID)
	for i := range items {
		items[i].seq = newSeq()
		if items[i].debounce.asked {
			items[i].payload = last[items[i].id]
		}
	}
	return items
}

// enqueue puts in some items, in one transaction.
func (q *Queue) enqueue(ctx context.Context, items []Item, e *enqueuing) (added int, err error) {
	for try, begun := 0, clock.Mono(); len(items) > 0; try++ {
		s, err := q.sessions.get(ctx, q.cfg.TTL)
		if err != nil {
			return added, err
		}
		room, err := q.room(ctx)
		if err != nil {
			return added, err
		}
		if room != nil && q.cfg.MaxWaiting-room.Waiting < len(items) {
			some, err := q.partly(ctx, items, q.cfg.MaxWaiting-room.Waiting, e)
			return added + some, err
		}
		since := s.lastSeen()
		some, done, err := q.send(ctx, s, items, room, e)
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
func (q *Queue) send(ctx context.Context, s *session, items []Item, room *item.Room, e *enqueuing) (added int, done bool, err error) {
	if len(items) == 1 && room == nil {
		one := q.enqueueOf(items[0], e.now)
		resp, again, err := s.put(ctx, one)
		if err != nil || again {
			return 0, false, err
		}
		return e.entered(items[0], one.Judge(resp)), true, nil
	}
	all := q.enqueueAll(items, e.now)
	all.Room = room
	resp, again, err := s.commitAll(ctx, all.Build(), 1, &s.adds)
	if err != nil || again || !resp.Succeeded {
		return 0, false, err
	}
	for i, entered := range all.Judge(resp) {
		added += e.entered(items[i], entered)
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
	var marks []*pb.RequestOp
	for _, it := range items {
		marks = append(marks, q.enqueueOf(it, time.Time{}).Mark(int64(lease)))
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
	one := q.enqueueOf(it, time.Time{})
	from, to := one.History()
	for resp := range q.claims.Etcd().Watch(ctx, from, clientv3.WithRange(to), clientv3.WithRev(since+1)) {
		if err := resp.Err(); err != nil {
			return false, err
		}
		events := make([]*mvccpb.Event, len(resp.Events))
		for i, ev := range resp.Events {
			events[i] = (*mvccpb.Event)(ev)
		}
		if put, known := one.Marked(events, end); known {
			return put, nil
		}
	}
	return false, fmt.Errorf("the history of the item cannot be read: %w", context.Cause(ctx))
}

// partly enqueues the items that there is room for, one by one.
func (q *Queue) partly(ctx context.Context, items []Item, room int, e *enqueuing) (added int, err error) {
	for i, it := range items {
		if room <= 0 {
			// An item that is there already needs no room.
			resp, err := q.read(ctx, clientv3.OpGet(q.keys.Place(it.id)), clientv3.OpGet(q.keys.Content(it.id), clientv3.WithCountOnly()))
			if err != nil {
				return added, err
			}
			if txn.Count(resp, 1) > 0 {
				e.entered(it, q.keys.Known(txn.Kvs(resp, 0)))
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

// room returns how many items wait, or nil if any number may.
func (q *Queue) room(ctx context.Context) (*item.Room, error) {
	if q.cfg.MaxWaiting == 0 {
		return nil, nil
	}
	resp, err := q.answer(ctx, q.keys.ReadRoom())
	if err != nil {
		return nil, err
	}
	room := q.keys.JudgeRoom(resp)
	return &room, nil
}

// enqueueOf is the step that enqueues an item.
func (q *Queue) enqueueOf(it Item, now time.Time) item.Enqueue {
	return item.Enqueue{Keys: q.keys, New: q.begun(it, now), Now: now}
}

// enqueueAll is the step that enqueues several.
func (q *Queue) enqueueAll(items []Item, now time.Time) item.EnqueueAll {
	all := item.EnqueueAll{Keys: q.keys, Now: now}
	for _, it := range items {
		all.Items = append(all.Items, q.begun(it, now))
	}
	return all
}

// begun returns an item as it is enqueued.
func (q *Queue) begun(it Item, now time.Time) item.New {
	vesting := it.vesting
	if vesting.IsZero() {
		vesting = now.Add(it.delay)
	}
	return item.New{
		ID: it.id, Given: it.given || it.unique.asked, Seq: it.seq, Topic: it.topic, Key: it.key, Payload: it.payload,
		Priority: it.priority, Vesting: vesting, Max: cmp.Or(it.max, q.cfg.MaxAttempts),
	}
}

// Op returns the operation that enqueues items, for a transaction of the caller's
// own: with the caller's other writes (an outbox), or in work.Work.Complete or
// [Delivery.Complete]. Op sends nothing to etcd. It neither checks nor stores the queue's
// configuration; Enqueue and Claim do. Until then WorkMany takes it from this Queue. Delay
// counts from the call of Op.
//
// If the transaction is carried out twice the items are enqueued once, while the item is
// in the queue or its id is remembered (Config.Retention). So give each item an ID, and
// after a lost reply commit the same transaction again, with the same Op.
//
// A transaction can contain one Op of each queue, with up to 64 items. If etcd's
// --max-txn-ops is N, below its default of 128, the limit is N - 4 items, minus the number
// of other operations in the transaction. Op enforces neither Config.MaxWaiting nor
// Config.SpaceReserve. It does not enqueue an id that is a dead letter, and ignores
// OverDead and Debounce.
func (q *Queue) Op(items ...Item) (clientv3.Op, error) {
	if len(items) == 0 || len(items) > itemsPerRequest {
		return clientv3.Op{}, q.fail("enqueue", fmt.Errorf("%d items in one operation: want 1 to %d", len(items), itemsPerRequest))
	}
	items = sequenced(items)
	for _, it := range items {
		if err := q.checkItem(it); err != nil {
			return clientv3.Op{}, q.fail("enqueue", err)
		}
	}
	cmps, then, els := txn.Operations(q.enqueueAll(items, q.now()).Build())
	return clientv3.OpTxn(cmps, then, els), nil
}
