package queue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// healer mends what no request of this package leaves, but a restore of some keys or
// an operator's hands can: a content that no key of the queue refers to, and a slot of no
// item. It reads some of each at a time, and begins again behind the last.
//
// Each request of this package moves an item from one key to another in one transaction,
// under the condition that the first key is unchanged. So an item that has no key at one
// revision of etcd never gets one again by itself, and is not being moved.
type healer struct {
	q     *store
	due   time.Time // when it reads again
	items string    // behind which content the next page begins
	slots string    // behind which slot
	lanes string    // behind which lane of a partition key
	keyed bool      // there are such lanes
	page  int64     // how many contents are read at once
}

const (
	healEvery = 15 * time.Second
	// A page of contents is as large as fits into pageBytes, about, within these.
	pageBytes           = 256 << 10
	fewContents         = 4
	mostContents        = 64
	mostTakenRead       = 20_000 // keys, to find out whether a worker has an item
	takenPage     int64 = 1000
)

// heal reads some keys, if it is time to, and mends what it finds.
func (h *healer) heal(ctx context.Context, s *session) error {
	begun := clock.Mono()
	if begun.Before(h.due) {
		return nil
	}
	h.due = begun.Add(healEvery)
	err := h.healSlots(ctx, s)
	if err == nil && h.keyed {
		err = h.healLanes(ctx, s)
	}
	if err == nil {
		err = h.healItems(ctx, s)
	}
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return nil // between two reads of one revision
	case err != nil:
		return err
	}
	h.due = begun.Add(rest(time.Since(begun), healEvery, mostRest))
	return nil
}

// healSlots frees slots that no item has: each would lower MaxTaken by one for ever.
func (h *healer) healSlots(ctx context.Context, s *session) error {
	if h.q.cfg.MaxTaken == 0 {
		return nil
	}
	kvs, _, err := h.next(ctx, &h.slots, h.q.keys.Slots(), mostContents)
	if err != nil {
		return err
	}
	var ops txn.Ops
	takers := make([]txn.Op, len(kvs))
	for i, kv := range kvs {
		takers[i] = ops.Add(clientv3.OpGet(item.FreeSlot{Keys: h.q.keys, Slot: kv}.Taker(), clientv3.WithCountOnly()))
	}
	answers, err := h.q.readAll(ctx, ops)
	if err != nil {
		return err
	}
	for i, kv := range kvs {
		if answers.Count(takers[i]) > 0 {
			continue
		}
		resp, err := s.send(ctx, item.FreeSlot{Keys: h.q.keys, Slot: kv}.Build())
		if err != nil {
			return err
		}
		if resp.Succeeded {
			h.q.log.Warn("freed a slot that no item had", zap.ByteString("etcd_key", kv.Key), zap.ByteString("value", kv.Value))
		}
	}
	return nil
}

// healLanes frees lanes that no item has: each would lower KeyLimit by one for its key. It goes on while it finds some.
func (h *healer) healLanes(ctx context.Context, s *session) error {
	for {
		kvs, _, err := h.next(ctx, &h.lanes, h.q.keys.Lanes(), mostContents)
		if err != nil {
			return err
		}
		freed := false
		for some := range slices.Chunk(kvs, max(1, h.q.size.MaxOps()/2)) {
			n, err := h.freeLanes(ctx, s, some)
			if err != nil {
				return err
			}
			freed = freed || n > 0
		}
		if !freed || h.lanes == "" {
			return nil
		}
	}
}

// freeLanes frees those of some lanes that no item has, and returns how many.
func (h *healer) freeLanes(ctx context.Context, s *session, lanes []*mvccpb.KeyValue) (n int, err error) {
	var reads []*pb.RequestOp
	for _, kv := range lanes {
		reads = append(reads, item.FreeLane{Keys: h.q.keys, Lane: kv}.Reads()...)
	}
	resp, err := h.q.answer(ctx, reads)
	if err != nil {
		return 0, err
	}
	for i, kv := range lanes {
		one := &pb.TxnResponse{Responses: resp.Responses[2*i : 2*i+2]}
		free := item.FreeLane{Keys: h.q.keys, Lane: kv}.Judge(one)
		if free == nil {
			continue
		}
		done, err := s.send(ctx, free)
		if err != nil {
			return n, err
		}
		if done.Succeeded {
			n++
			h.q.log.Warn("freed a lane that no item had", zap.ByteString("etcd_key", kv.Key), zap.ByteString("value", kv.Value))
		}
	}
	return n, nil
}

// next reads the keys of a range behind those that were read last, and the revision. It
// begins again at the start once there are no more.
func (h *healer) next(ctx context.Context, last *string, prefix string, most int64) ([]*mvccpb.KeyValue, int64, error) {
	from := prefix
	if *last != "" {
		from = *last + "\x00"
	}
	page, err := h.q.page(ctx, clientv3.OpGet(from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(most)))
	if err != nil {
		return nil, 0, err
	}
	if *last = ""; page.More && len(page.Kvs) > 0 {
		*last = string(page.Kvs[len(page.Kvs)-1].Key)
	}
	return page.Kvs, page.Header.Revision, nil
}

// healItems makes items wait again that are nowhere in the queue. Look reports that they
// are being moved, and Enqueue that the queue has them.
func (h *healer) healItems(ctx context.Context, s *session) error {
	kvs, rev, err := h.next(ctx, &h.items, h.q.keys.Content(""), max(h.page, fewContents))
	if err != nil {
		return err
	}
	bytes := int64(0)
	var items []*item.Heal
	for _, kv := range kvs {
		bytes += int64(len(kv.Value))
		c, err := item.Decode[item.Content](kv.Key, kv.Value)
		if id := strings.TrimPrefix(string(kv.Key), h.q.keys.Content("")); err == nil && c.Done == nil && !strings.HasSuffix(id, "\x00") {
			items = append(items, &item.Heal{Keys: h.q.keys, ID: id, Content: c, Rev: kv.ModRevision, Max: h.q.cfg.MaxAttempts})
		}
	}
	h.page = min(max(int64(len(kvs))*pageBytes/max(bytes, 1), fewContents), mostContents)
	if items, err = h.strays(ctx, items, rev); err != nil {
		return err
	}
	for _, it := range items {
		if err := h.requeue(ctx, s, it); err != nil {
			return err
		}
	}
	return nil
}

// strays returns those items that have no key at a revision: neither where they were
// enqueued, nor at their place, nor below a session.
func (h *healer) strays(ctx context.Context, items []*item.Heal, rev int64) ([]*item.Heal, error) {
	k, at := h.q.keys, clientv3.WithRev(rev)
	var ops txn.Ops
	count := func(key string) txn.Op { return ops.Add(clientv3.OpGet(key, clientv3.WithCountOnly(), at)) }
	type reads struct{ ready, later, behind, place txn.Op }
	begun := make([]reads, len(items))
	for i, it := range items {
		c := it.Content
		begun[i] = reads{
			ready: count(k.ReadyAt(c.Rank, c.Vesting, c.Seq)), later: count(k.LaterAt(c.Rank, c.Vesting, c.Seq)),
			place: ops.Add(clientv3.OpGet(k.Place(it.ID), at)),
		}
		if begun[i].behind = begun[i].later; c.Key != "" {
			begun[i].behind = count(k.BehindAt(c.Key, c.Rank, c.Vesting, c.Seq))
		}
	}
	answers, err := h.q.readAll(ctx, ops)
	if err != nil {
		return nil, err
	}
	var left []*item.Heal
	var moved []reads
	ops = nil
	for i, it := range items {
		if answers.Count(begun[i].ready)+answers.Count(begun[i].later)+answers.Count(begun[i].behind) > 0 {
			continue
		}
		if kv := answers.First(begun[i].place); kv != nil {
			if it.Placed, err = item.Decode[item.Place](kv.Key, kv.Value); err != nil {
				continue // of a newer version
			}
			it.PlaceAt = kv.ModRevision
		}
		left = append(left, it)
		key := k.Placed(it.Placed)
		vested, ok := k.Vested(key)
		if !ok {
			vested = key
		}
		moved = append(moved, reads{ready: count(vested), place: count(key)})
	}
	if answers, err = h.q.readAll(ctx, ops); err != nil || len(left) == 0 {
		return nil, err
	}
	taken, err := h.takenAt(ctx, rev)
	if err != nil || taken == nil {
		return nil, err
	}
	var strays []*item.Heal
	for i, it := range left {
		placed := it.Placed.Key != "" && answers.Count(moved[i].place)+answers.Count(moved[i].ready) > 0
		if !placed && !taken[it.ID] {
			strays = append(strays, it)
		}
	}
	return strays, nil
}

// takenAt returns the ids of the items that workers had at a revision; nil if they are
// too many to be read.
func (h *healer) takenAt(ctx context.Context, rev int64) (map[string]bool, error) {
	prefix := h.q.keys.Taken()
	ids, from := map[string]bool{}, prefix
	for len(ids) < mostTakenRead {
		page, err := h.q.page(ctx, clientv3.OpGet(from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(takenPage), clientv3.WithKeysOnly(), clientv3.WithRev(rev)))
		if err != nil {
			return nil, err
		}
		for _, kv := range page.Kvs {
			_, id, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), prefix), "/")
			ids[id] = true
		}
		if !page.More || len(page.Kvs) == 0 {
			return ids, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
	return nil, nil
}

// requeue makes an item wait again.
func (h *healer) requeue(ctx context.Context, s *session, it *item.Heal) error {
	it.Now = h.q.now()
	if it.Content.Key != "" { // it may have a lane
		lanes, err := h.q.answer(ctx, h.q.keys.LaneOf(it.Content.Key))
		if err != nil {
			return err
		}
		it.Lane = h.q.keys.JudgeLane(lanes, it.Content.Seq, it.ID)
	}
	resp, err := s.send(ctx, it.Build())
	if err == nil && resp.Succeeded {
		h.q.log.Warn("an item that was nowhere in the queue is there again", zap.String("item", it.ID))
	}
	return err
}
