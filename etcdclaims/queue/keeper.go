package queue

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// The keeper of a queue is one process of those that claim from it: the holder of
// the claim keeperKey. It looks after what dead workers leave behind.
const emptyFor = time.Minute // before a queue is no longer noted as one with work

// keep is the keeper's goroutine, in each process that claims.
func (q *Queue) keep() {
	failing := false // and that was logged
	for try := 0; q.ctx.Err() == nil; try++ {
		var ended error // why the claim ended: a request that failed then, failed by that
		err := q.claims.Run(q.ctx, q.keys.KeeperKey(), func(ctx context.Context) error {
			err := q.keepHouse(ctx)
			if ended = context.Cause(ctx); ended != nil {
				return nil
			}
			return err
		}, option.OwnKey{}, etcdclaims.TTL(q.cfg.TTL))
		if err == nil {
			err = ended
		}
		if q.ctx.Err() != nil || errors.Is(err, etcdclaims.ErrClosed) {
			return
		}
		switch {
		case failing || err == nil:
		case errors.Is(err, etcdclaims.ErrLost):
			q.log.Info("queue keeper lost its claim", zap.Error(err))
		default:
			q.log.Warn("queue keeper failed; retrying", zap.Error(err))
		}
		if failing = err != nil; !failing {
			try = 0
		}
		if !retry.Pause(q.ctx, try) {
			return
		}
	}
}

// keepHouse does the keeper's work until ctx ends. Each step is safe for any number
// of processes; that one does it saves requests.
func (q *Queue) keepHouse(ctx context.Context) error {
	every := q.cfg.TTL / 3
	var empty, trimmed time.Time
	mender := healer{q: q, last: clock.Mono()}
	q.keeping.Store(true)
	defer q.keeping.Store(false)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { q.vest(ctx) })
	for {
		s, err := q.sessions.get(ctx, q.cfg.TTL)
		if err != nil {
			return err
		}
		alive, _, err := q.recoverDead(ctx, s)
		if err != nil {
			return err
		}
		if time.Since(trimmed) >= trimEvery {
			if err := q.trim(ctx, s); err != nil {
				return err
			}
			trimmed = clock.Mono()
		}
		if empty, err = q.deactivate(ctx, s, empty); err != nil {
			return err
		}
		if err := mender.heal(ctx, s); err != nil {
			return err
		}
		wait := every
		if alive <= 1 {
			wait = 2 * every // only this process can die
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-q.died:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
		t.Stop()
	}
}

// vest moves items to the visible ones as their time comes, until ctx ends. Claimers
// leave that to the keeper for vestGrace.
func (q *Queue) vest(ctx context.Context) {
	near := "" // as of reach
	for try := 0; ctx.Err() == nil; {
		wait := q.cfg.TTL / 3
		q.vests.Store(math.MaxInt64) // the read may lack keys that are put from now on
		next, err := q.vestNow(ctx, &near)
		switch {
		case err != nil:
			wait = retry.Delay(try)
			try++
		default:
			try = 0
			if !next.IsZero() {
				q.vests.Store(next.UnixNano())
				wait = min(wait, max(next.Sub(q.now()), 0))
			}
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-q.vesting:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// vestNow moves the items that have vested, and returns when the next one does. It can
// be repeated after an unknown outcome: an item is moved only from where it was read.
func (q *Queue) vestNow(ctx context.Context, near *string) (next time.Time, err error) {
	for {
		now := q.now()
		page, err := q.page(ctx, upTo(q.keys.Later(), *near, itemsPerRequest))
		if err != nil {
			return next, err
		}
		later, _, err := q.readable(ctx, q.keys.Later(), itemsPerRequest, page)
		if err != nil {
			return next, err
		}
		vested, next := q.vested(later, now)
		switch {
		case len(later) == itemsPerRequest:
			*near = endOf(later)
		case *near != "" && len(vested) == 0 && next.IsZero():
			*near = ""
			continue
		}
		if len(vested) == 0 {
			return next, nil
		}
		s, err := q.sessions.get(ctx, q.cfg.TTL)
		if err != nil {
			return next, err
		}
		if err := q.promote(ctx, s, vested); err != nil {
			return next, err
		}
	}
}

// deactivate removes the note that the queue has work, once it has been empty for a
// while, and puts it again if it is missing. The note is removed only if the queue is empty at that
// instant. So an enqueue that comes at the same time finds it, or makes it anew.
func (q *Queue) deactivate(ctx context.Context, s *session, empty time.Time) (time.Time, error) {
	var ops txn.Ops
	ready := ops.Add(clientv3.OpGet(q.keys.Ready(), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	later := ops.Add(clientv3.OpGet(q.keys.Later(), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	taken := ops.Add(clientv3.OpGet(q.keys.Taken(), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	active, spec := ops.Add(clientv3.OpGet(q.keys.Active(), clientv3.WithCountOnly())), ops.Add(clientv3.OpGet(q.keys.Spec()))
	resp, err := q.read(ctx, ops...)
	if err != nil {
		return empty, err
	}
	r := txn.ReplyIn(resp)
	q.checkSpec(r.Kvs(spec))
	if err := q.ensureSpec(ctx); err != nil {
		return empty, err
	}
	items, noted := r.Count(ready)+r.Count(later)+r.Count(taken), r.Count(active) > 0
	switch {
	case items > 0 && !noted:
		_, err := s.send(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{q.keys.Activate()}})
		return time.Time{}, err
	case items > 0 || !noted:
		return time.Time{}, nil
	}
	if empty.IsZero() {
		return clock.Mono(), nil
	}
	if time.Since(empty) < emptyFor {
		return empty, nil
	}
	_, err = s.send(ctx, q.keys.Deactivate())
	return time.Time{}, err
}
