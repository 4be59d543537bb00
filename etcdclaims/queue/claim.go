package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Batch is the result of TryClaim or Claim.
type Batch struct {
	// Deliveries are the claimed items, in the order of the queue. The worker has each item
	// until it completes, fails or gives it back.
	Deliveries []*Delivery
	// Taken is how many items workers had, if nothing was claimed. It distinguishes an
	// empty queue from a busy one.
	Taken int
	// Next is when the next item vests. Zero means that no item waits to vest.
	Next time.Time
	// Paused is set if the queue is paused. Nothing is claimed then.
	Paused bool

	visible bool // there are items that this process may claim
}

// ClaimOption shapes one claiming call.
type ClaimOption interface{ applyClaim(*claimOptions) }

type claimOptions struct{ ttl time.Duration }

type claimOption func(*claimOptions)

func (f claimOption) applyClaim(o *claimOptions) { f(o) }

// TTL sets the lease duration of the claimed items, between etcdclaims.MinTTL (2 s if
// the client allows short ones) and a year. Items claimed with one duration share a
// session. Zero means Config.TTL, which is the default.
func TTL(d time.Duration) ClaimOption { return claimOption(func(o *claimOptions) { o.ttl = d }) }

// TryClaim claims up to n visible items for this worker, and does not wait. A Batch
// without leases and no error means that no item is visible. If items are taken then,
// TryClaim first recovers those of dead workers. ctx bounds only the claiming; the
// leases have contexts of their own.
//
// Errors: ErrConfig, etcdclaims.ErrLost if the leases of this process are revoked again
// and again, and those of etcdclaims.Client.TryAcquire. After any error nothing stays
// claimed: items that were claimed by a request whose reply was lost are given back.
func (q *Queue) TryClaim(ctx context.Context, n int, opts ...ClaimOption) (Batch, error) {
	b, err := q.claim(ctx, n, false, opts)
	return b, q.fail("claim", err)
}

// Claim is TryClaim, but waits until at least one item is visible. It does not poll: it
// wakes when an item is enqueued, is given back or vests. In case an event was lost, it
// also reads again after a third of the TTL, at most 10 s.
//
// If ctx ends first the error matches its cause.
func (q *Queue) Claim(ctx context.Context, n int, opts ...ClaimOption) (Batch, error) {
	b, err := q.claim(ctx, n, true, opts)
	return b, q.fail("claim", err)
}

func (q *Queue) claim(ctx context.Context, n int, wait bool, opts []ClaimOption) (Batch, error) {
	if n <= 0 {
		return Batch{}, fmt.Errorf("number of items %d is not positive", n)
	}
	var o claimOptions
	for _, opt := range opts {
		if opt != nil {
			opt.applyClaim(&o)
		}
	}
	if wait {
		defer q.await()()
	}
	return q.ask(ctx, &want{n: n, wait: wait, ttl: cmp.Or(o.ttl, q.cfg.TTL)})
}

// ask has the claimer answer.
func (q *Queue) ask(ctx context.Context, w *want) (Batch, error) {
	w.n = min(w.n, itemsPerRequest) // nobody gets more at once, and the claimer adds these numbers
	w.reply = make(chan reply, 1)
	if err := q.claimer.ask(w); err != nil {
		return Batch{}, err
	}
	select {
	case r := <-w.reply:
		return r.batch, r.err
	case <-ctx.Done():
		if q.claimer.leave(w) {
			return Batch{}, context.Cause(ctx)
		}
		r := <-w.reply // it was answered just now
		return r.batch, r.err
	}
}

// taking has the operations of one item in a claiming request: the transaction itself, and in
// it the read of the content, or the one that removes a second key.
type taking struct{ op, content, second txn.Op }

// takeItems claims the picked items: each item by itself, if it is where it was, the
// queue is not paused, and its slot is free. refused is set if the request as a whole was
// refused: the queue is paused, or the session's generation is another.
//
// A key of an item that this session has already is a second one, as a restore of some keys
// leaves. It is removed, so that the item is not taken twice. If another session has the item,
// no condition can refuse the second key: what says so stands below that session. A key for
// each taken item would, and would cost each claim and each ending a write.
func (q *Queue) takeItems(ctx context.Context, s *session, items []*picked) (leases []*Delivery, refused bool, err error) {
	defer s.begin()()
	now := q.now().UTC()
	nonce := uuid.NewString()
	var ops txn.Ops
	takes := make([]taking, len(items))
	for i, p := range items {
		p.st.Attempts++
		p.st.Owner, p.st.Since, p.st.Epoch, p.st.Nonce = q.claims.Owner(), now, keyspace.Epoch(s.claim.Fence()), nonce
		taken := q.keys.takenBy(s.id) + p.st.ID
		cmps := []clientv3.Cmp{unmoved(string(p.kv.Key), p.kv.ModRevision)}
		second := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(taken), ">", 0)}, []clientv3.Op{clientv3.OpDelete(string(p.kv.Key))}, nil)
		cmps = append(cmps, absent(taken))
		var then, els txn.Ops
		takes[i].content, takes[i].second = then.Add(clientv3.OpGet(q.keys.item(p.st.ID))), els.Add(second)
		then = append(then, clientv3.OpDelete(string(p.kv.Key)), clientv3.OpPut(taken, encode(p.st)))
		if p.st.Slot > 0 {
			cmps = append(cmps, absent(q.keys.slot(p.st.Slot)))
			then = append(then, clientv3.OpPut(q.keys.slot(p.st.Slot), slotOwner(s.id, p.st.ID)))
		}
		takes[i].op = ops.Add(clientv3.OpTxn(cmps, then, els))
	}
	resp, again, err := s.commit(ctx, []clientv3.Cmp{absent(q.keys.paused())}, ops, nil)
	switch {
	case errors.Is(err, etcdclaims.ErrUnknown):
		leases, err := q.takenAfterAll(ctx, s, items, nonce, err)
		if err != nil {
			s.doubt()
		}
		return leases, false, err
	case err != nil:
		return nil, false, err
	case again || !resp.Succeeded:
		return nil, true, nil
	}
	for i, take := range takes {
		if one := txn.ReplyIn(resp).Inner(take.op); one.Succeeded {
			if l := q.delivered(s, items[i].st, one.Kvs(take.content), one.Rev); l != nil {
				leases = append(leases, l)
			}
		} else if one.Inner(take.second).Succeeded {
			s.doubt() // the key by which the session has the item may be one that no lease is of
		}
	}
	return leases, false, nil
}

// delivered makes the delivery of an item that was taken. An item without content becomes a
// dead letter: no worker can handle it.
func (q *Queue) delivered(s *session, st state, item []*mvccpb.KeyValue, rev int64) *Delivery {
	var c content
	var err error
	if len(item) > 0 {
		c, err = decode[content](item[0].Key, item[0].Value)
	}
	if missing := len(item) == 0 || c.Missing; missing {
		err = fmt.Errorf("item %q has no content", st.ID)
	}
	l := newDelivery(q, s, st, c, rev)
	if err != nil {
		q.skip(err)
		q.spawn(func() {
			discard := func() error { return l.Discard(q.ctx, err.Error()) }
			if len(item) == 0 {
				discard = func() error { return l.discardEmpty(q.ctx, err.Error()) }
			}
			if derr := discard(); derr != nil {
				q.log.Warn("item without content not discarded", zap.String("item", st.ID), zap.Error(derr))
			}
		})
		return nil
	}
	return l
}

// takenAfterAll finds out what a claiming request of unknown outcome took.
func (q *Queue) takenAfterAll(ctx context.Context, s *session, items []*picked, nonce string, unknown error) ([]*Delivery, error) {
	var reads txn.Ops
	taken := make([]txn.Op, len(items))
	for i, p := range items {
		taken[i] = reads.Add(clientv3.OpGet(q.keys.takenBy(s.id) + p.st.ID))
	}
	// Items and their contents are not read in one request: the contents may be
	// too large together for the ones that were not taken.
	resp, err := s.void(ctx, reads...)
	if err != nil {
		return nil, fmt.Errorf("%w (looking it up: %w)", unknown, err)
	}
	var leases []*Delivery
	for i, read := range taken {
		kv := txn.ReplyIn(resp).First(read)
		if kv == nil {
			continue
		}
		st, err := decodeState(kv)
		switch {
		case err != nil:
			q.skip(err)
			s.doubt()
			continue
		case st.Nonce != nonce:
			continue
		}
		item, err := q.readContent(ctx, items[i].st.ID)
		if err != nil {
			return leases, fmt.Errorf("%w (looking it up: %w)", unknown, err)
		}
		if l := q.delivered(s, st, item.Kvs, kv.ModRevision); l != nil {
			leases = append(leases, l)
		}
	}
	return leases, nil
}

// readContent reads the content of an item. It fails after patience without an answer.
func (q *Queue) readContent(ctx context.Context, id string) (item *clientv3.GetResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = retry.Do(ctx, passing, func() (err error) {
		item, err = get(ctx, q.claims, q.keys.item(id))
		return err
	})
	return item, err
}
