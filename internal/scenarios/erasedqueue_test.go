package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/keyspace"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const inQueue = `queue/` + hex + `/`

var erasedQueue = &feature{
	doc: "queue.md", from: "## How it works\n", to: "**Sessions.**", use: useQueue,
	kinds: []erasable{
		{key: "`content/<id>`", name: inQueue + `content/\d+\x00?`, within: 40 * sec},
		{key: "`index/ready/<rank>/<vesting>/<seq>`", name: inQueue + `index/ready/.+`, within: 40 * sec},
		{key: "`index/later/<vesting>/<rank>/<seq>`", name: inQueue + `index/later/.+`, within: 40 * sec},
		{key: "`index/behind/<digest of key>/<rank>/<vesting>/<seq>`", name: inQueue + `index/behind/.+`, within: 40 * sec},
		{key: "`index/lane/<digest of key>/<n>`", name: inQueue + `index/lane/.+`, within: 40 * sec},
		{key: "`index/cancelled/<session>/<id>`", name: inQueue + `index/cancelled/.+`, rare: true},
		{key: "`taken/<session>/<id>`", name: inQueue + `taken/.+/\d+`, within: 40 * sec},
		{key: "`place/<id>`", name: inQueue + `place/\d+`, within: 40 * sec},
		{key: "`dead/<time>/<seq>`", name: inQueue + `dead/.+`, within: 40 * sec},
		{key: "`worker/<session>`", name: inQueue + `worker/.+`, within: 40 * sec},
		{key: "`slot/<n>`", name: inQueue + `slot/\d+`, within: 10 * sec},
		{key: "`index/idle/<session>`", name: inQueue + `index/idle/.+`, within: 10 * sec},
		{key: "`bound`", name: inQueue + `bound`, within: sec},
		{key: "`paused`", name: inQueue + `paused`, within: 10 * sec},
		{key: "`trimmed`", name: inQueue + `trimmed`, within: 10 * sec},
		{key: "`spec`", name: inQueue + `spec`, within: 10 * sec},
		{key: "`index/bell`", name: inQueue + `index/bell`, within: sec},
		{name: `queue/active/` + hex, within: 20 * sec},
		{name: `own/queue/q/session/.+`, within: 10 * sec},
		{name: `own/queue/q/keeper`, within: 10 * sec},
		{name: `session/` + uuid + `/live/\d+`, within: 10 * sec},
		{name: `session/` + uuid + `/(won|evict)/` + uuid + `|wait/` + hex + `/` + uuid + `|note/queue/q/.+`, within: 10 * sec},
		{name: audited, rare: true},
	},
}

// useQueue enqueues items, which two processes handle: some of them fail once, some die, and some are delayed.
func useQueue(w *erasure) {
	open := func() *queue.Queue {
		c, _ := w.client(etcdclaims.Config{})
		q, err := queue.New(c, queue.Config{Name: "q", TTL: 6 * sec, MaxTaken: 4, MaxWaiting: 1000, Retention: time.Minute})
		w.ok(err)
		w.Cleanup(func() { _ = q.Close(context.Background()) })
		return q
	}
	for range 2 {
		q := open()
		w.start(func() { w.failed(q.Work(w.ctx, queue.WorkerConfig{Concurrency: 2, Handler: w.handleItem})) })
	}
	// As the keeper would do after five minutes.
	trimmed := fmt.Sprintf(`{"v":1,"at":%q}`, time.Now().UTC().Format(time.RFC3339))
	_, err := w.raw.Put(w.ctx, etcdclaims.DefaultPrefix+"queue/"+keyspace.Digest("q")+"/trimmed", trimmed)
	w.ok(err)
	q := open()
	w.start(func() {
		for i := 0; w.until(15 * sec); i++ {
			w.failed(q.Pause(w.ctx, "lunch"))
			w.until(sec)
			w.failed(q.Resume(w.ctx))
		}
	})
	var enqueued []string
	w.start(func() {
		for i := 0; w.until(300 * time.Millisecond); i++ {
			id := strconv.Itoa(i)
			opts := []queue.ItemOption{queue.ID(id)}
			switch i % 5 {
			case 2:
				opts = append(opts, queue.Delay(3*sec))
			case 3:
				opts = append(opts, queue.PartitionKey("tenant"))
			}
			for w.ctx.Err() == nil {
				_, err := q.Enqueue(w.ctx, queue.NewItem([]byte("payload"), opts...))
				if err == nil {
					break
				}
				w.failed(err)
				w.until(sec)
			}
			w.mu.Lock()
			enqueued = append(enqueued, id)
			w.mu.Unlock()
			w.did("enqueued")
		}
	})
	w.settled = func() error {
		w.mu.Lock()
		all := enqueued[:max(0, len(enqueued)-100)]
		w.mu.Unlock()
		return w.accountFor(q, all)
	}
}

func (w *erasure) handleItem(ctx context.Context, l *queue.Delivery) error {
	n, err := strconv.Atoi(l.ID())
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(500 * time.Millisecond):
	}
	switch {
	case n%7 == 3 && l.Attempt() == 1:
		return errors.New("not yet")
	case n%11 == 5:
		err := l.Discard(ctx, "useless")
		w.failed(err)
		return err
	}
	err = l.Complete(ctx, clientv3.OpPut(effects+l.ID(), "done"))
	if err == nil {
		w.did("completed")
	}
	w.failed(err)
	return err
}

// accountFor returns an error unless each of the items is completed or a dead letter.
func (w *erasure) accountFor(q *queue.Queue, ids []string) error {
	resp, err := w.raw.Get(context.Background(), effects, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	done := make(map[string]bool)
	for _, kv := range resp.Kvs {
		done[string(kv.Key[len(effects):])] = true
	}
	for _, id := range ids {
		if done[id] {
			continue
		}
		if info, err := q.Look(context.Background(), id); err != nil || info.Where != queue.Dead {
			return fmt.Errorf("item %s is not done, but %q: %w", id, info.Where, err)
		}
	}
	return nil
}
