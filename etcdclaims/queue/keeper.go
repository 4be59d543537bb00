package queue

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// keeper is what a process does for a queue as its keeper: the one process, of those that claim
// from it, that holds the claim KeeperKey. It looks after what dead workers leave behind.
type keeper struct {
	*holder
	keeping atomic.Bool   // this process is the keeper
	countBy time.Time     // when it counts the items again; this and the next, the keeper's goroutine only
	noted   bool          // the queue was noted as one with work
	keyed   atomic.Bool   // items have lanes of partition keys
	vesting chan struct{} // capacity 1: an item was put that vests before vests
	vests   atomic.Int64  // when the keeper moves items next, in Unix nanoseconds
	died    chan struct{} // capacity 1: a session has ended

	mu    sync.Mutex
	later floor // of what vest reads
}

func newKeeper(h *holder) *keeper {
	k := &keeper{holder: h, vesting: make(chan struct{}, 1), died: make(chan struct{}, 1)}
	k.later.prefix = h.keys.Later()
	return k
}

const emptyFor = time.Minute // before a queue is no longer noted as one with work

// keep is the keeper's goroutine, in each process that claims.
func (k *keeper) keep() {
	failing := false // and that was logged
	for try := 0; k.ctx.Err() == nil; try++ {
		var ended error // why the claim ended: a request that failed then, failed by that
		err := k.claims.Run(k.ctx, k.keys.KeeperKey(), func(ctx context.Context) error {
			err := k.keepHouse(ctx)
			if ended = context.Cause(ctx); ended != nil {
				return nil
			}
			return err
		}, option.OwnKey{}, etcdclaims.TTL(k.cfg.TTL))
		err = cmp.Or(err, ended)
		if k.ctx.Err() != nil || errors.Is(err, etcdclaims.ErrClosed) {
			return
		}
		switch {
		case failing || err == nil:
		case errors.Is(err, etcdclaims.ErrLost):
			k.log.Info("queue keeper lost its claim", zap.Error(err))
		default:
			k.log.Warn("queue keeper failed; retrying", zap.Error(err))
		}
		if failing = err != nil; !failing {
			try = 0
		}
		if !retry.Pause(k.ctx, try) {
			return
		}
	}
}

// keepHouse does the keeper's work until ctx ends. Each step is safe for any number
// of processes; that one does it saves requests.
func (k *keeper) keepHouse(ctx context.Context) error {
	every := k.cfg.TTL / 3
	var empty, trimmed time.Time
	mender := healer{q: k.store, due: clock.Mono().Add(healEvery)}
	k.keeping.Store(true)
	defer k.keeping.Store(false)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { k.vest(ctx) })
	for {
		s, err := k.sessions.get(ctx, k.cfg.TTL)
		if err != nil {
			return err
		}
		alive, _, err := k.recoverDead(ctx, s)
		if err != nil {
			return err
		}
		if time.Since(trimmed) >= trimEvery {
			if err := k.trim(ctx, s); err != nil {
				return err
			}
			trimmed = clock.Mono()
		}
		noted, err := k.inspect(ctx)
		if err != nil {
			return err
		}
		if empty, err = k.count(ctx, s, noted, empty); err != nil {
			return err
		}
		mender.keyed = k.keyed.Load()
		if err := mender.heal(ctx, s); err != nil {
			return err
		}
		wait := every
		if alive <= 1 {
			wait = 2 * every // only this process can die
		}
		select {
		case <-time.After(wait):
		case <-k.died:
		case <-ctx.Done():
			return nil
		}
	}
}

// vest moves items to the visible ones as their time comes, until ctx ends. Claimers
// leave that to the keeper for vestGrace.
func (k *keeper) vest(ctx context.Context) {
	near := "" // as of reach
	for try := 0; ctx.Err() == nil; {
		wait := k.cfg.TTL / 3
		k.vests.Store(math.MaxInt64) // the read may lack keys that are put from now on
		next, err := k.vestNow(ctx, &near)
		switch {
		case err != nil:
			wait = retry.Delay(try)
			try++
		default:
			try = 0
			if !next.IsZero() {
				k.vests.Store(next.UnixNano())
				wait = min(wait, max(next.Sub(k.now()), 0))
			}
		}
		select {
		case <-time.After(wait):
		case <-k.vesting:
		case <-ctx.Done():
		}
	}
}

// vestNow moves the items that have vested, and returns when the next one does. It can
// be repeated after an unknown outcome: an item is moved only from where it was read.
func (k *keeper) vestNow(ctx context.Context, near *string) (next time.Time, err error) {
	for {
		now, from := k.now(), k.from()
		if *near <= from {
			*near = ""
		}
		page, err := k.page(ctx, upTo(k.keys.Later(), from, *near, itemsPerRequest))
		if err != nil {
			return next, err
		}
		k.found(firstKey(page, *near))
		later, _, err := k.readable(ctx, k.keys.Later(), itemsPerRequest, page)
		if err != nil {
			return next, err
		}
		vested, next := k.vested(later, now)
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
		s, err := k.sessions.get(ctx, k.cfg.TTL)
		if err != nil {
			return next, err
		}
		if err := k.promote(ctx, s, vested); err != nil {
			return next, err
		}
	}
}

// from returns from where on vest is to read.
func (k *keeper) from() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.later.begin(clock.Mono(), false)
}

// found notes the first later key that vest has read, or "" if it has read none.
func (k *keeper) found(first string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.later.end(first, clock.Mono(), func(took time.Duration) time.Duration {
		return rest(took, k.trust(), mostHidden)
	})
}

// heed notes whether the watch reports to see from now on.
func (k *keeper) heed(watched bool) {
	if watched && k.keeping.Load() && k.keyed.Load() {
		k.lanes.note(allKeys, laneGrace) // the watch has missed what was before
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.later.reset(watched)
}

// inspect checks the spec, has the partition keys looked at of which items wait, and reports whether it is noted
// that the queue has work.
func (k *keeper) inspect(ctx context.Context) (noted bool, err error) {
	var ops txn.Ops
	active, spec := ops.Add(clientv3.OpGet(k.keys.Active(), clientv3.WithCountOnly())), ops.Add(clientv3.OpGet(k.keys.Spec()))
	behind, lanes := ops.Add(anyOf(k.keys.Behind())), ops.Add(anyOf(k.keys.Lanes()))
	resp, err := k.read(ctx, ops...)
	if err != nil {
		return false, err
	}
	r := txn.ReplyIn(resp)
	k.keyed.Store(r.Count(lanes) > 0)
	if r.Count(behind) > 0 && k.keeping.Load() { // of a lane that has become free, no process may know
		k.lanes.noteAll()
	}
	k.checkSpec(r.Kvs(spec))
	return r.Count(active) > 0, k.ensureSpec(ctx)
}

// count is deactivate now and then, for it walks, and at once when the note has gone.
func (k *keeper) count(ctx context.Context, s *session, noted bool, empty time.Time) (time.Time, error) {
	begun, gone := clock.Mono(), k.noted && !noted
	if k.noted = noted; begun.Before(k.countBy) && !gone {
		return empty, nil
	}
	empty, err := k.deactivate(ctx, s, noted, empty)
	if err != nil {
		k.noted = k.noted || gone // to be counted at once by the next try
		return empty, err
	}
	k.countBy = begun.Add(rest(time.Since(begun), emptyFor/2, mostRest))
	return empty, nil
}

// activate puts the note that the queue has work if it has any.
func (k *keeper) activate(ctx context.Context, s *session) error {
	noted, err := k.inspect(ctx)
	if err == nil {
		_, err = k.deactivate(ctx, s, noted, time.Time{})
	}
	return err
}

// deactivate removes the note that the queue has work, once it has been empty for a
// while, and puts it again if it is missing. The note is removed only if the queue is empty at that
// instant. So an enqueue that comes at the same time finds it, or makes it anew.
// empty is since when the queue was empty, or the zero time.
func (k *keeper) deactivate(ctx context.Context, s *session, noted bool, empty time.Time) (time.Time, error) {
	var ops txn.Ops
	ready := ops.Add(clientv3.OpGet(k.keys.Ready(), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	behind := ops.Add(clientv3.OpGet(k.keys.Behind(), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	later := ops.Add(clientv3.OpGet(k.keys.Later(), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	taken := ops.Add(clientv3.OpGet(k.keys.Taken(), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	resp, err := k.read(ctx, ops...)
	if err != nil {
		return empty, err
	}
	r := txn.ReplyIn(resp)
	items := r.Count(ready) + r.Count(later) + r.Count(behind) + r.Count(taken)
	switch {
	case items > 0 && !noted:
		_, err := s.send(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{k.keys.Activate()}})
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
	_, err = s.send(ctx, k.keys.Deactivate())
	return time.Time{}, err
}

// see has items moved earlier than planned if one was put that vests before.
func (k *keeper) see(events []*clientv3.Event) {
	if k.keeping.Load() {
		k.lanes.see(events)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, ev := range events {
		key := string(ev.Kv.Key)
		vesting, later := strings.CutPrefix(key, k.keys.Later())
		if !later {
			continue
		}
		k.later.see(key, ev.Type == mvccpb.Event_PUT)
		if at, err := item.VestingOf(vesting); ev.IsCreate() && err == nil && at.UnixNano() < k.vests.Load() {
			select {
			case k.vesting <- struct{}{}:
			default:
			}
		}
	}
}
