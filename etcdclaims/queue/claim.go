package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/google/uuid"
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

// takeItems claims the picked items. refused is set if the request as a whole was
// refused: the queue is paused, or the session's generation is another.
func (q *Queue) takeItems(ctx context.Context, s *session, picked []*item.Entry) (leases []*Delivery, refused bool, err error) {
	defer s.begin()()
	claim := item.Claim{
		Keys: q.keys, Session: s.id, Items: picked, Owner: q.claims.Owner(),
		Epoch: keyspace.Epoch(s.claim.Fence()), Now: q.now().UTC(), Nonce: uuid.NewString(),
	}
	resp, again, err := s.commit(ctx, claim.Build())
	switch {
	case errors.Is(err, etcdclaims.ErrUnknown):
		leases, err := q.takenAfterAll(ctx, s, claim, err)
		if err != nil {
			s.doubt()
		}
		return leases, false, err
	case err != nil:
		return nil, false, err
	case again || !resp.Succeeded:
		return nil, true, nil
	}
	got, second := claim.Judge(resp)
	for _, taken := range got {
		if l := q.delivered(s, taken); l != nil {
			leases = append(leases, l)
		}
	}
	if second > 0 {
		s.doubt() // the key by which the session has the item may be one that no lease is of
	}
	return leases, false, nil
}

// delivered makes the delivery of an item that was taken. It returns nil for one without content.
func (q *Queue) delivered(s *session, taken item.Taken) *Delivery {
	c, err := taken.Decode()
	l := newDelivery(q, s, taken, c)
	if err != nil {
		q.skip(err)
		q.spawn(func() {
			if derr := l.discard(q.ctx, err.Error(), taken.Content == nil); derr != nil {
				q.log.Warn("item without content not discarded", zap.String("item", taken.State.ID), zap.Error(derr))
			}
		})
		return nil
	}
	return l
}

// takenAfterAll finds out what a claiming request of unknown outcome took.
func (q *Queue) takenAfterAll(ctx context.Context, s *session, claim item.Claim, unknown error) ([]*Delivery, error) {
	resp, err := s.void(ctx, claim.Reads()...)
	if err != nil {
		return nil, fmt.Errorf("%w (looking it up: %w)", unknown, err)
	}
	got, unreadable := claim.JudgeReads(resp)
	for _, err := range unreadable {
		q.skip(err)
		s.doubt()
	}
	var leases []*Delivery
	for _, taken := range got {
		content, err := q.readContent(ctx, taken.State.ID)
		if err != nil {
			return leases, fmt.Errorf("%w (looking it up: %w)", unknown, err)
		}
		if len(content.Kvs) > 0 {
			taken.Content = content.Kvs[0]
		}
		if l := q.delivered(s, taken); l != nil {
			leases = append(leases, l)
		}
	}
	return leases, nil
}

// readContent reads the content of an item. It fails after patience without an answer.
func (q *Queue) readContent(ctx context.Context, id string) (content *clientv3.GetResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = retry.Do(ctx, passing, func() (err error) {
		content, err = get(ctx, q.claims, q.keys.Content(id))
		return err
	})
	return content, err
}
