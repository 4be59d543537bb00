package queue

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// listen wakes the claimer when something was put into the index, or a slot became
// free. A watch is a hint: the claimer looks again without it, too.
func (q *Queue) listen() {
	etcd := q.claims.Etcd()
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(q.ctx))
	defer cancel()
	for try := 0; ctx.Err() == nil; try++ {
		watchCtx, end := context.WithCancel(ctx)
		index := etcd.Watch(watchCtx, q.keys.index(), clientv3.WithPrefix(), clientv3.WithFilterDelete())
		var slots clientv3.WatchChan
		if q.cfg.MaxTaken > 0 {
			slots = etcd.Watch(watchCtx, q.keys.slots(), clientv3.WithPrefix(), clientv3.WithFilterPut())
		}
		q.claimer.stir() // for what came before the watch
		for open := true; open; {
			var resp clientv3.WatchResponse
			select {
			case resp, open = <-index:
			case resp, open = <-slots:
			}
			if open && resp.Err() == nil {
				try = 0
				q.claimer.stir()
			}
		}
		end()
		if !pause(ctx, try) {
			return
		}
	}
}

// The keeper of a queue is one process of those that claim from it: the holder of
// the claim keeperKey. It looks after what dead workers leave behind.
const (
	emptyFor    = time.Minute     // before a queue is no longer noted as one with work
	trimEvery   = 5 * time.Minute // dead letters past their retention
	mostTrimmed = 100             // dead letters with one request
)

// keep is the keeper's goroutine, in each process that claims.
func (q *Queue) keep() {
	failing := false // and that was logged
	for try := 0; q.ctx.Err() == nil; try++ {
		err := q.claims.Run(q.ctx, q.keys.keeperKey(), q.keepHouse, etcdclaims.TTL(q.cfg.TTL))
		if q.ctx.Err() != nil || errors.Is(err, etcdclaims.ErrClosed) {
			return
		}
		if err != nil && !failing {
			q.log.Warn("queue keeper failed, retrying", zap.Error(err))
		}
		if failing = err != nil; !failing {
			try = 0
		}
		if !pause(q.ctx, min(try, 10)) {
			return
		}
	}
}

// keepHouse does the keeper's work until ctx ends. Each step is safe for any number
// of processes; that one does it saves requests.
func (q *Queue) keepHouse(ctx context.Context) error {
	every := q.cfg.TTL / 3
	var empty, trimmed time.Time
	wake := q.funerals(ctx)
	for {
		s, err := q.sessions.get(ctx, q.cfg.TTL)
		if err != nil {
			return err
		}
		alive, err := q.recoverDead(ctx, s)
		if err != nil {
			return err
		}
		if time.Since(trimmed) >= trimEvery {
			if err := q.trim(ctx, s); err != nil {
				return err
			}
			trimmed = time.Now()
		}
		if empty, err = q.deactivate(ctx, s, empty); err != nil {
			return err
		}
		wait := every
		if alive <= 1 {
			wait = 2 * every // nobody but this process can die
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-wake:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
		t.Stop()
	}
}

// funerals tells when a session of the queue ends.
func (q *Queue) funerals(ctx context.Context) <-chan struct{} {
	wake := make(chan struct{}, 1)
	prefix := q.claims.OwnKey(q.keys.sessionKey(""))
	q.spawn(func() {
		for try := 0; ctx.Err() == nil; try++ {
			for resp := range q.claims.Etcd().Watch(clientv3.WithRequireLeader(ctx), prefix, clientv3.WithPrefix(), clientv3.WithFilterPut()) {
				if resp.Err() == nil {
					try = 0
					select {
					case wake <- struct{}{}:
					default:
					}
				}
			}
			if !pause(ctx, try) {
				return
			}
		}
	})
	return wake
}

// trim removes dead letters past their retention, oldest first.
func (q *Queue) trim(ctx context.Context, s *session) error {
	if q.cfg.DeadRetention < 0 {
		return nil
	}
	before := q.keys.dead() + enc(time.Now().Add(-q.cfg.DeadRetention))
	for {
		n, err := q.purgeSome(ctx, s, before)
		if err != nil || n == 0 {
			return err
		}
	}
}

// deactivate removes the note that the queue has work, once it has been empty for a
// while. The note is removed only if nothing is in the queue at that instant, so an
// enqueue that comes at the same time finds it, or makes it anew.
func (q *Queue) deactivate(ctx context.Context, s *session, empty time.Time) (time.Time, error) {
	resp, err := q.read(ctx,
		clientv3.OpGet(q.keys.ready(), clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpGet(q.keys.later(), clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpGet(q.keys.taken(), clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpGet(q.keys.active(), clientv3.WithCountOnly()))
	if err != nil {
		return empty, err
	}
	for _, r := range resp.Responses[:3] {
		if r.GetResponseRange().Count > 0 {
			return time.Time{}, nil
		}
	}
	if resp.Responses[3].GetResponseRange().Count == 0 {
		return time.Time{}, nil
	}
	if empty.IsZero() {
		return time.Now(), nil
	}
	if time.Since(empty) < emptyFor {
		return empty, nil
	}
	_, err = s.claim.Txn(ctx).
		If(absent(q.keys.ready()).WithPrefix(), absent(q.keys.later()).WithPrefix(), absent(q.keys.taken()).WithPrefix()).
		Then(clientv3.OpDelete(q.keys.active())).Commit()
	return time.Time{}, err
}
