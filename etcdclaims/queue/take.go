package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// takeItems claims the picked items. refused is set if the request as a whole was
// refused: the queue is paused, or the session's generation is another.
func (q *holder) takeItems(ctx context.Context, s *session, picked []*item.Entry) (leases []*Delivery, refused bool, err error) {
	defer s.begin()()
	claim := item.Claim{
		Keys: q.keys, Session: s.id, Items: picked, Owner: q.claims.Owner(),
		Epoch: keyspace.Epoch(s.claim.Fence()), Now: q.now().UTC(), Nonce: uuid.NewString(),
	}
	resp, again, err := s.commitAll(ctx, claim.Build(), 0, &s.takes)
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
func (q *holder) delivered(s *session, taken item.Taken) *Delivery {
	c, err := taken.Decode()
	l := newDelivery(q, s, taken, c)
	if err != nil {
		q.skip(err)
		q.spawn(func() {
			if derr := l.discard(q.ctx, err.Error(), taken.Content == nil); derr != nil {
				l.abandon()
				q.log.Warn("item without content not discarded", zap.String("item", taken.State.ID), zap.Error(derr))
			}
		})
		return nil
	}
	return l
}

// takenAfterAll finds out what a claiming request of unknown outcome took.
func (q *holder) takenAfterAll(ctx context.Context, s *session, claim item.Claim, unknown error) ([]*Delivery, error) {
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
		if taken.Gone() {
			continue
		}
		if l := q.delivered(s, taken); l != nil {
			leases = append(leases, l)
		}
	}
	return leases, nil
}

// readContent reads the content of an item. It fails after patience without an answer.
func (q *holder) readContent(ctx context.Context, id string) (content *clientv3.GetResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = retry.Do(ctx, passing, func() (err error) {
		content, err = get(ctx, q.claims, q.keys.Content(id))
		return err
	})
	return content, err
}
