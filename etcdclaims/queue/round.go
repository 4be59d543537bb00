package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// mostLooks is how often one claim reads the head of the queue because of what sessions left.
const mostLooks = 3

// claimSome claims up to n items by one transaction, of which the watch has reported if
// all callers wait, or else after a read. more is set if there may be more visible
// items for this process.
func (c *claimer) claimSome(s *session, n int, wait bool) (b Batch, more bool, err error) {
	if err := s.reconcile(c.q.ctx); err != nil {
		return b, false, err
	}
	if wait {
		if b, more, known, err := c.claimKnown(s, n); known {
			return b, more, err
		}
	} else {
		_, _ = c.q.lanes.settle(c.q.ctx) // it is tried again; other keys have items all the same
	}
	for looks := 1; ; {
		ahead := 0
		if wait {
			ahead = readAhead
		}
		// What was just recovered may be before the floor: the watch can report it late.
		v, err := c.look(s, max(n, c.window)+ahead, !wait || looks > 1)
		if err != nil {
			return b, false, err
		}
		b = Batch{Next: v.next, Paused: v.paused}
		if v.paused {
			if !wait {
				b.Taken, _, err = c.q.recoverEnded(c.q.ctx, v.rev)
			}
			return b, false, err
		}
		if wait && len(v.used) < c.q.cfg.MaxTaken && len(v.ready) > 0 && len(v.vested) == 0 {
			if b, more, known, err := c.claimKnown(s, n); known { // in turn: all that wait have read
				return b, more, err
			}
		}
		visible := slices.SortedFunc(slices.Values(slices.DeleteFunc(slices.Concat(v.ready, v.vested), lacks)), item.ByOrder)
		var free []int
		if c.q.cfg.MaxTaken > 0 {
			free = c.q.freeSlots(v.used)
			rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		}
		most := n
		if c.q.cfg.MaxTaken > 0 {
			most = min(n, len(free))
		}
		b.visible = len(visible) > 0 && (c.q.cfg.MaxTaken == 0 || len(free) > 0)
		// The process may not live for long enough that the goroutines do it which watch deaths.
		if !b.visible && (!wait || !c.looked) {
			var again bool
			if b.Taken, again, err = c.q.recoverEnded(c.q.ctx, v.rev); err != nil {
				return Batch{}, false, err
			}
			if c.looked = true; again && looks < mostLooks {
				looks++
				continue
			}
		}
		chosen := fitting(c.choose(visible, most), claimedSize)
		for i, p := range chosen {
			if c.q.cfg.MaxTaken > 0 {
				p.State.Slot = free[i]
			}
		}
		b.Deliveries, err = c.claimPicked(s, chosen, most)
		switch {
		case err != nil:
			return Batch{}, false, err
		case len(b.Deliveries) == 0 && slices.ContainsFunc(chosen, func(p *item.Entry) bool { return slices.Contains(v.vested, p) }):
			continue // the keeper has moved them
		}
		b.Taken = max(b.Taken, len(b.Deliveries)) // for callers who get none of them
		// If all that were read are claimed there may be others behind them.
		return b, len(chosen) > 0 && (len(b.Deliveries) < len(chosen) || len(visible) > len(chosen) || !v.all), nil
	}
}

// claimKnown claims items that arrivals knows, if it does.
func (c *claimer) claimKnown(s *session, n int) (b Batch, more, known bool, err error) {
	items, known := c.arrivals.claimable(max(n, c.window), clock.Mono())
	if !known {
		return b, false, false, nil
	}
	chosen := fitting(c.choose(items, n), claimedSize)
	b.visible = len(items) > 0
	b.Deliveries, err = c.claimPicked(s, chosen, n)
	return b, len(chosen) > 0, true, err
}

// look reads the head of the queue, whole or from where it can have items. Items that have vested count as visible ones. If
// there are more of them than the read returns, the first ones of the queue may not be
// among them: then they are moved to the others first, by the keeper's process, or by
// any that finds the keeper late. A pause that is over is ended first.
func (c *claimer) look(s *session, n int, whole bool) (v view, err error) {
	q := c.q
	for try := 0; ; {
		v, err = q.lookNear(q.ctx, n, c.arrivals.begin(whole), &c.near)
		late := (v.crowd || v.lack) && (c.keeping.Load() || q.now().Sub(v.vested[0].State.Vesting) > vestGrace) || v.lack && whole
		over := v.pause.Over(q.now())
		leave := err == nil && !over && (!late || v.paused)
		if leave && v.crowd {
			v.next, err = q.nextVesting(q.ctx)
		}
		switch {
		case err != nil:
			return v, err
		case leave:
			c.arrivals.read(v)
			return v, nil
		case over:
			_, err = s.send(q.ctx, q.keys.EndPause(v.since))
		default:
			err = q.promote(q.ctx, s, v.vested)
		}
		// The next read sees what came of a request of unknown outcome, and a late one
		// finds the items moved, and another pause or none.
		if err != nil && (!errors.Is(err, etcdclaims.ErrUnknown) || !retry.Pause(q.ctx, try)) {
			return v, err
		}
		try++
	}
}

// mostMisses is how many claims in a row may get nothing before the next one waits.
const mostMisses = 4

// claimPicked claims the items, and adapts the window to how much of it others
// were faster with. n is how many items were wanted.
func (c *claimer) claimPicked(s *session, items []*item.Entry, n int) ([]*Delivery, error) {
	if len(items) == 0 {
		return nil, nil
	}
	begin := clock.Mono()
	leases, refused, err := c.q.takeItems(c.q.ctx, s, items)
	if err != nil {
		for _, l := range leases {
			l.end(ErrExpired) // no caller got them: reconcile gives them back
			s.forget(l)
		}
		c.arrivals.forget(false)
		if c.q.size.refusedItems(err, len(items), opsToClaim) {
			return nil, nil // fewer the next time
		}
		return nil, err
	}
	c.arrivals.settle(items, leases, time.Since(begin))
	if c.misses++; len(leases) > 0 {
		c.misses = 0
	} else if c.misses > mostMisses { // something keeps these items from being claimed
		retry.Pause(c.q.ctx, min(c.misses-mostMisses, mostMisses))
	}
	if refused {
		c.arrivals.forget(false)
		return nil, nil
	}
	// Others were faster with the rest: pick from more next time. Not with those that
	// have just vested, which the keeper may have moved: while one process claims alone
	// it claims in order.
	switch missed := readyOf(c.q.store, items) - len(leases); {
	case missed > 0:
		c.window = min(max(c.window, n)*2, 1024)
	case c.window > 1:
		// Slowly: it settles where about one request in twenty-five misses.
		c.window -= max(1, c.window/24)
	}
	return leases, nil
}

// readyOf returns how many of the items had been moved to the ready ones.
func readyOf(q *store, items []*item.Entry) (n int) {
	for _, p := range items {
		if strings.HasPrefix(p.Key(), q.keys.Ready()) {
			n++
		}
	}
	return n
}

// choose chooses n of the first visible items: all in order while no other process
// claims, and at random from a window once others do. Of an item with several keys it
// chooses one.
func (c *claimer) choose(visible []*item.Entry, n int) []*item.Entry {
	visible = distinct(visible, func(p *item.Entry) string { return p.State.ID })
	if len(visible) > n && c.window > n {
		visible = slices.Clone(visible[:min(c.window, len(visible))])
		rand.Shuffle(len(visible), func(i, j int) { visible[i], visible[j] = visible[j], visible[i] })
		visible = visible[:min(n, len(visible))]
		slices.SortFunc(visible, item.ByOrder)
	}
	return visible[:min(n, len(visible))]
}

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
