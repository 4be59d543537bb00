package queue

import (
	"cmp"
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
	vest func(context.Context) error // moves the later items whose time has come

	turn  chan struct{} // capacity 1: whoever fills it has tries
	tries int           // that failed in a row

	mu      sync.Mutex
	due     map[string]due    // when to look at which key, by its digest; allKeys for all
	ends    map[string]string // up to where the first items of a key are, by its digest; "": not known
	scanBy  time.Time         // when to look at all keys again at the earliest
	running bool
	wake    chan struct{} // capacity 1
}

// due is when to look at a key.
type due struct {
	at     time.Time
	others bool // another process changed something, and as a rule looks at the key itself
}

const (
	allKeys = ""
	// mostNoted bounds the keys that are remembered by name.
	mostNoted = 1000
	// laneGrace is how long the keeper leaves a change to the process that made it.
	laneGrace = 200 * time.Millisecond
	// turnsFor is how long Close gives turns for what this process has enqueued or ended.
	turnsFor = time.Second
	// scanPage is how many waiting items are read at once to find their keys.
	scanPage = 256
)

func (l *lanes) init(q *store, live func(context.Context) (sender, error), vest func(context.Context) error) {
	l.q, l.live, l.vest, l.due, l.ends = q, live, vest, map[string]due{}, map[string]string{}
	l.wake, l.turn = make(chan struct{}, 1), make(chan struct{}, 1)
}

// note has a key looked at after a while.
func (l *lanes) note(digest string, after time.Duration) {
	l.add(digest, due{at: clock.Mono().Add(after)})
}

// noteAll has all keys looked at, unless that was done a short while ago for as long as that takes.
func (l *lanes) noteAll() {
	l.mu.Lock()
	at := l.scanBy
	l.mu.Unlock()
	l.note(allKeys, max(0, at.Sub(clock.Mono())))
}

func (l *lanes) add(digest string, d due) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.due) >= mostNoted {
		clear(l.due)
		digest = allKeys
	}
	if was, noted := l.due[digest]; noted && !d.at.Before(was.at) {
		was.others = was.others && d.others
		l.due[digest] = was
		return
	}
	l.due[digest] = d
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
	for digest, d := range l.due {
		if left := d.at.Sub(now); left > 0 {
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
		select {
		case <-time.After(wait):
		case <-l.wake:
		case <-l.q.ctx.Done():
			return
		}
	}
}

// settle looks at the keys that are due, and returns how long it is until the next one is. What this process has
// enqueued or ended before has no effect on lanes after that, unless it fails.
func (l *lanes) settle(ctx context.Context) (wait time.Duration, err error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	digests, wait := l.take()
	switch {
	case len(digests) == 0:
		return wait, nil
	case slices.Contains(digests, allKeys):
		_, err = l.scan(ctx, false)
	default:
		_, err = l.advance(ctx, digests)
	}
	if err == nil {
		l.tries = 0
		return 0, nil
	}
	again := retry.Delay(l.tries)
	l.tries++
	for _, digest := range digests {
		l.note(digest, again)
	}
	return again, err
}

// scan looks at all keys of which items wait, or, if some is set, until an item is visible. It returns how many
// it made visible.
func (l *lanes) scan(ctx context.Context, some bool) (moved int, err error) {
	k, begun := l.q.keys, clock.Mono()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.scanBy = begun.Add(rest(time.Since(begun), 0, mostRest))
	}()
	for from := k.Behind(); ; {
		page, failed := l.q.page(ctx, clientv3.OpGet(from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(k.Behind())),
			clientv3.WithLimit(scanPage), clientv3.WithKeysOnly()))
		if failed != nil {
			return moved, failed
		}
		var digests []string
		for _, kv := range page.Kvs {
			digests = append(digests, k.LaneDigest(string(kv.Key)))
		}
		digests = slices.Compact(digests)
		n, failed := l.advance(ctx, digests)
		if moved += n; err == nil {
			err = failed
		}
		if err != nil && passing(err) || !page.More || len(digests) == 0 || some && moved > 0 {
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

// advance looks at some keys, and returns how many items it made visible. One that it cannot look at hides no others.
func (l *lanes) advance(ctx context.Context, digests []string) (moved int, err error) {
	looks := l.looks(digests)
	for len(looks) > 0 {
		some := looks[:min(len(looks), itemsPerRequest, max(1, (l.q.size.MaxOps()-1)/2))]
		n, failed := l.advanceSome(ctx, some)
		if moved += n; l.q.size.refused(failed, 2*len(some)+1) {
			continue
		}
		err = cmp.Or(err, failed)
		if err != nil && passing(err) {
			return moved, err
		}
		looks = looks[len(some):]
	}
	return moved, err
}

// looks returns how to look at some keys.
func (l *lanes) looks(digests []string) (looks []item.Look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, digest := range digests {
		looks = append(looks, item.Look{Digest: digest, End: l.ends[digest]})
	}
	return looks
}

// looked notes up to where the first items of keys are.
func (l *lanes) looked(looks []item.Look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, look := range looks {
		if delete(l.ends, look.Digest); look.End == "" {
			continue
		}
		if len(l.ends) >= mostNoted {
			clear(l.ends)
		}
		l.ends[look.Digest] = look.End
	}
}

// advanceSome is advance for keys that one request can look at. Items that have vested are moved before, for some
// may come before those that wait: while there is no keeper no process may have moved them.
func (l *lanes) advanceSome(ctx context.Context, looks []item.Look) (moved int, err error) {
	for vested := false; len(looks) > 0; {
		step := item.Turns{Keys: l.q.keys, Looks: looks, Now: l.q.now()}
		resp, err := l.q.answer(ctx, step.Build())
		if err != nil {
			return moved, err
		}
		found := step.Judge(resp)
		if found.Late && !vested {
			if err := l.vest(ctx); err != nil {
				return moved, err
			}
			vested = true
			continue
		}
		l.q.skipAll(found.Unreadable)
		l.looked(found.Next)
		n, err := l.give(ctx, found.Turns)
		if moved += n; err != nil {
			return moved, err
		}
		looks = slices.DeleteFunc(found.Next, func(look item.Look) bool { return !look.Again })
	}
	return moved, nil
}

// give gives items the lanes that were free. If one of them, or its lane, has changed, its key is looked at again.
// So it is if an item has several keys: it moves one of them.
func (l *lanes) give(ctx context.Context, turns []item.Turn) (moved int, err error) {
	if once := distinct(turns, func(t item.Turn) string { return t.State.ID }); len(once) < len(turns) {
		for _, t := range turns {
			l.note(t.Digest, 0)
		}
		turns = once
	}
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
			} else {
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
			l.add(digest, due{at: clock.Mono().Add(laneGrace), others: true})
		case lane && l.q.spec().LaneLimit() == 1: // else it need not be the lane that was freed
			l.unnote(digest)
		}
	}
}

// unnote does not have a key looked at that others look at, unless that is due.
func (l *lanes) unnote(digest string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.due[digest]; d.others && d.at.After(clock.Mono()) {
		delete(l.due, digest)
	}
}
