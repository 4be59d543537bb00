package queue

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// sender sends requests under the guard of a session.
type sender interface {
	send(ctx context.Context, in *pb.TxnRequest) (*pb.TxnResponse, error)
}

// lanes makes items visible that wait behind a partition key, once the key has a free lane. The process that
// enqueued an item, or has ended one, does so at once, in the background. The keeper does it a moment later for
// what other processes have left. Any number of processes may do it at once.
type lanes struct {
	q    *store
	live func(context.Context) (sender, error)

	turn  chan struct{} // capacity 1: whoever fills it has tries
	tries int           // that failed in a row

	mu      sync.Mutex
	due     map[string]time.Time // when to look at which key, by its digest; allKeys for all
	running bool
	wake    chan struct{} // capacity 1
}

const (
	allKeys = ""
	// mostNoted bounds the keys that are remembered by name.
	mostNoted = 1000
	// laneGrace is how long the keeper leaves a change to the process that made it.
	laneGrace = 200 * time.Millisecond
	// scanPage is how many waiting items are read at once to find their keys.
	scanPage = 256
)

func (l *lanes) init(q *store, live func(context.Context) (sender, error)) {
	l.q, l.live, l.due = q, live, map[string]time.Time{}
	l.wake, l.turn = make(chan struct{}, 1), make(chan struct{}, 1)
}

// note has a key looked at after a while.
func (l *lanes) note(digest string, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := clock.Mono().Add(after)
	if len(l.due) >= mostNoted {
		clear(l.due)
		digest = allKeys
	}
	if was, noted := l.due[digest]; noted && !at.Before(was) {
		return
	}
	l.due[digest] = at
	if l.running = l.running || l.q.spawn(l.run); !l.running {
		return // it is being closed
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// noteKey has the key of an item looked at, if it has one.
func (l *lanes) noteKey(key string) {
	if key != "" {
		l.note(keyspace.Digest(key), 0)
	}
}

// take returns the keys that are due, or how long it is until one is.
func (l *lanes) take() (digests []string, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, wait := clock.Mono(), time.Hour
	for digest, at := range l.due {
		if left := at.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		digests = append(digests, digest)
		delete(l.due, digest)
	}
	return digests, wait
}

// run is the goroutine that does it, from the first note on.
func (l *lanes) run() {
	for {
		wait, err := l.settle(l.q.ctx)
		if err != nil && l.q.ctx.Err() == nil {
			l.q.log.Debug("partition keys not looked at", zap.Error(err))
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-l.wake:
		case <-l.q.ctx.Done():
			t.Stop()
			return
		}
		t.Stop()
	}
}

// settle looks at the keys that are due, and returns how long it is until the next one is. What this process has
// enqueued or ended before has no effect on lanes after that.
func (l *lanes) settle(ctx context.Context) (wait time.Duration, err error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for {
		digests, wait := l.take()
		switch {
		case len(digests) == 0:
			return wait, nil
		case slices.Contains(digests, allKeys):
			_, err = l.scan(ctx, false)
		default:
			_, err = l.advance(ctx, digests)
		}
		if err != nil {
			again := retry.Delay(l.tries)
			l.tries++
			for _, digest := range digests {
				l.note(digest, again)
			}
			return again, err
		}
		l.tries = 0
	}
}

// scan looks at all keys of which items wait, or, if some is set, until an item is visible. It returns how many
// it made visible.
func (l *lanes) scan(ctx context.Context, some bool) (moved int, err error) {
	k := l.q.keys
	for from := k.Behind(); ; {
		page, err := l.q.page(ctx, clientv3.OpGet(from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(k.Behind())),
			clientv3.WithLimit(scanPage), clientv3.WithKeysOnly()))
		if err != nil {
			return moved, err
		}
		var digests []string
		for _, kv := range page.Kvs {
			digests = append(digests, k.LaneDigest(string(kv.Key)))
		}
		digests = slices.Compact(digests)
		n, err := l.advance(ctx, digests)
		if moved += n; err != nil || !page.More || len(digests) == 0 || some && moved > 0 {
			return moved, err
		}
		from = k.BehindAfter(digests[len(digests)-1])
	}
}

// anyTurn makes items visible whose turn has come, unless none of those has that wait. It reports whether it did,
// or others have since so many waited.
func (l *lanes) anyTurn(ctx context.Context, before int64) (bool, error) {
	if moved, err := l.scan(ctx, true); err != nil || moved > 0 {
		return true, err
	}
	page, err := l.q.page(ctx, anyOf(l.q.keys.Behind()))
	return page.GetCount() != before, err
}

// advance looks at some keys, and returns how many items it made visible.
func (l *lanes) advance(ctx context.Context, digests []string) (moved int, err error) {
	for some := range slices.Chunk(digests, max(1, min(itemsPerRequest, l.q.size.MaxOps()/2))) {
		step := item.Turns{Keys: l.q.keys, Digests: some}
		resp, err := l.q.answer(ctx, step.Build())
		if err != nil {
			return moved, err
		}
		turns, unreadable := step.Judge(resp)
		l.q.skipAll(unreadable)
		n, err := l.give(ctx, turns)
		if moved += n; err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// give gives items the lanes that were free. If one of them, or its lane, has changed, its key is looked at again.
func (l *lanes) give(ctx context.Context, turns []item.Turn) (moved int, err error) {
	for len(turns) > 0 {
		s, err := l.live(ctx)
		if err != nil {
			return moved, err
		}
		some := fitting(turns[:min(len(turns), l.q.size.items(opsToMove))], func(t item.Turn) int { return movedSize(t.KV) })
		step := item.Advance{Keys: l.q.keys, Turns: some}
		var resp *pb.TxnResponse
		resp, err = s.send(ctx, step.Build())
		switch {
		case l.q.size.refusedItems(err, len(some), opsToMove):
			continue
		case err != nil:
			return moved, err
		}
		for i, done := range step.Judge(resp) {
			if done {
				moved++
			}
			if !done || some[i].More {
				l.note(some[i].Digest, 0)
			}
		}
		turns = turns[len(some):]
	}
	return moved, nil
}

// see has keys looked at of which a lane was freed, or an item came to wait, unless an item has got a lane meanwhile.
func (l *lanes) see(events []*clientv3.Event) {
	for _, ev := range events {
		key, put := string(ev.Kv.Key), ev.Type == clientv3.EventTypePut
		digest, lane := l.q.keys.LaneDigest(key), strings.HasPrefix(key, l.q.keys.Lanes())
		switch {
		case digest == "":
		case lane != put: // a lane was freed, or an item waits
			l.note(digest, laneGrace)
		case lane:
			l.unnote(digest)
		}
	}
}

// unnote does not have a key looked at, unless that is due.
func (l *lanes) unnote(digest string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.due[digest].After(clock.Mono()) {
		delete(l.due, digest)
	}
}
