package queue

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/txn"
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
	q     *Queue
	last  time.Time // when it last read
	items string    // behind which content the next page begins
	slots string    // behind which slot
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
	if time.Since(h.last) < healEvery {
		return nil
	}
	h.last = clock.Mono()
	if err := h.healSlots(ctx, s); err != nil {
		return err
	}
	err := h.healItems(ctx, s)
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil // between two reads of one revision
	}
	return err
}

// healSlots frees slots that no item has: each would lower MaxTaken by one for ever.
func (h *healer) healSlots(ctx context.Context, s *session) error {
	if h.q.cfg.MaxTaken == 0 {
		return nil
	}
	kvs, _, err := h.next(ctx, &h.slots, h.q.keys.slots(), mostContents)
	if err != nil {
		return err
	}
	var ops txn.Ops
	takers := make([]txn.Op, len(kvs))
	for i, kv := range kvs {
		takers[i] = ops.Add(clientv3.OpGet(h.q.keys.taken()+string(kv.Value), clientv3.WithCountOnly()))
	}
	answers, err := h.q.readAll(ctx, ops)
	if err != nil {
		return err
	}
	for i, kv := range kvs {
		if answers.Count(takers[i]) > 0 {
			continue
		}
		slot := string(kv.Key)
		resp, err := s.claim.Txn(ctx).If(unmoved(slot, kv.ModRevision), absent(h.q.keys.taken()+string(kv.Value))).
			Then(clientv3.OpDelete(slot)).Commit()
		if err != nil {
			return err
		}
		if resp.Succeeded {
			h.q.log.Warn("freed a slot that no item had", zap.String("etcd_key", slot), zap.ByteString("value", kv.Value))
		}
	}
	return nil
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

// strayItem is a content that may have no key in the queue.
type strayItem struct {
	id      string
	content content
	rev     int64 // of the content
	placed  place
	placeAt int64 // ModRevision of its place; 0: it has none
}

// healItems makes items wait again that are nowhere in the queue. Look reports that they
// are being moved, and Enqueue that the queue has them.
func (h *healer) healItems(ctx context.Context, s *session) error {
	kvs, rev, err := h.next(ctx, &h.items, h.q.keys.item(""), max(h.page, fewContents))
	if err != nil {
		return err
	}
	bytes := int64(0)
	var items []*strayItem
	for _, kv := range kvs {
		bytes += int64(len(kv.Value))
		c, err := decode[content](kv.Key, kv.Value)
		if id := strings.TrimPrefix(string(kv.Key), h.q.keys.item("")); err == nil && c.Done == nil && !strings.HasSuffix(id, "\x00") {
			items = append(items, &strayItem{id: id, content: c, rev: kv.ModRevision})
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
func (h *healer) strays(ctx context.Context, items []*strayItem, rev int64) ([]*strayItem, error) {
	k, at := h.q.keys, clientv3.WithRev(rev)
	var ops txn.Ops
	count := func(key string) txn.Op { return ops.Add(clientv3.OpGet(key, clientv3.WithCountOnly(), at)) }
	type reads struct{ ready, later, place txn.Op }
	begun := make([]reads, len(items))
	for i, it := range items {
		c := it.content
		begun[i] = reads{
			count(k.readyAt(c.Rank, c.Vesting, c.Seq)), count(k.laterAt(c.Rank, c.Vesting, c.Seq)),
			ops.Add(clientv3.OpGet(k.place(it.id), at)),
		}
	}
	answers, err := h.q.readAll(ctx, ops)
	if err != nil {
		return nil, err
	}
	var left []*strayItem
	var moved []reads
	ops = nil
	for i, it := range items {
		if answers.Count(begun[i].ready)+answers.Count(begun[i].later) > 0 {
			continue
		}
		if kv := answers.First(begun[i].place); kv != nil {
			if it.placed, err = decode[place](kv.Key, kv.Value); err != nil {
				continue // of a newer version
			}
			it.placeAt = kv.ModRevision
		}
		left = append(left, it)
		key := k.root + it.placed.Key
		vested, ok := k.vested(key)
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
	var strays []*strayItem
	for i, it := range left {
		placed := it.placed.Key != "" && answers.Count(moved[i].place)+answers.Count(moved[i].ready) > 0
		if !placed && !taken[it.id] {
			strays = append(strays, it)
		}
	}
	return strays, nil
}

// takenAt returns the ids of the items that workers had at a revision; nil if they are
// too many to be read.
func (h *healer) takenAt(ctx context.Context, rev int64) (map[string]bool, error) {
	prefix := h.q.keys.taken()
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

// requeue makes an item wait that has no key, where it was enqueued, and a dead letter
// dead again. The content of its state is lost. The place is put with it, under the
// condition that it is as it was: so a request that comes late does not make an item of
// it twice.
func (h *healer) requeue(ctx context.Context, s *session, it *strayItem) error {
	q, c, now := h.q, it.content, h.q.now()
	st := state{
		Version: valueVersion, ID: it.id, Given: c.Given, Seq: c.Seq, Priority: priorityOf(c.Rank, q.cfg.HigherFirst),
		Vesting: c.Vesting, Max: q.cfg.MaxAttempts,
	}
	ops := q.requeue(st, place{Verb: "heal"}, now)
	if strings.HasPrefix(q.keys.root+it.placed.Key, q.keys.dead()) {
		ops = q.bury(st, place{Verb: "heal"}, "the item's dead letter was missing, and with it what it said", now)
	}
	resp, err := s.claim.Txn(ctx).If(unmoved(q.keys.item(it.id), it.rev), unmoved(q.keys.place(it.id), it.placeAt)).
		Then(append(ops, q.activate())...).Commit()
	if err == nil && resp.Succeeded {
		q.log.Warn("an item that was nowhere in the queue is there again", zap.String("item", it.id))
	}
	return err
}
