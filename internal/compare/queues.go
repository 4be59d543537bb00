package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/compare/load"
)

// queueBatch is how many items are enqueued, claimed and completed together.
const queueBatch = 32

// queues is items that are enqueued, claimed and completed. Each row guarantees
// something else: the queue that an item is completed once, by who has it; asynq and River
// that a job is not lost, and begun again by another if a worker seems to be dead, whose
// late acknowledgement counts; the list that no two take one item; the bare requests
// nothing.
func queues(options) workload {
	w := workload{
		name: "queue", of: "workers", compare: rate,
		title:   "Items enqueued, claimed and completed; ratios of rates to a list behind a Mutex; requests and µs of CPU for each item",
		columns: []metric{rate, ratio, p50, p99, requests, clientCPU, etcdCPU},
	}
	for _, n := range []int{1, 16, 64} {
		w.points = append(w.points, point{name: count(n, "worker"), n: n, rows: []row{
			{name: "etcdclaims/queue", open: queueCycle(1)},
			{name: fmt.Sprintf("etcdclaims/queue, %d at a time", queueBatch), open: queueCycle(queueBatch)},
			{name: "etcdclaims/queue, enqueue only", open: queueEnqueue},
			{name: "asynq, Redis fsync always", open: queuePeer(load.Asynq, redisDurable, 1)},
			{name: fmt.Sprintf("asynq, %d at a time", queueBatch), open: queuePeer(load.Asynq, redisDurable, queueBatch)},
			{name: "River, Postgres", open: queuePeer(load.River, postgres, 1)},
			{name: fmt.Sprintf("River, %d at a time", queueBatch), open: queuePeer(load.River, postgres, queueBatch)},
			{name: "asynq, enqueue only", open: enqueuePeer(load.Asynq, redisDurable)},
			{name: "River, enqueue only", open: enqueuePeer(load.River, postgres)},
			{name: "list behind a Mutex", reference: true, open: listCycle},
			{name: "list, enqueue only", open: listEnqueue},
			{name: "limit: two puts and a delete", open: bareCycle},
		}})
	}
	return w
}

// openQueue returns a queue by a client of its own.
func openQueue(st *stage, prefix string) (s *shared, q *queue.Queue, shut func(), err error) {
	if s, err = share(st); err != nil {
		return nil, nil, nil, err
	}
	c, err := etcdclaims.New(s.etcd, etcdclaims.Config{Prefix: prefix})
	if err == nil {
		q, err = queue.New(c, queue.Config{Name: "compare"})
	}
	if err != nil {
		hangUp(s.etcd)
		return nil, nil, nil, err
	}
	return s, q, func() {
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		_ = q.Close(ctx) // what it leaves in etcd is gone with that
		closeClaims(ctx, c)
		hangUp(s.etcd)
	}, nil
}

// queueCycle has workers enqueue some items each, and handle as many.
func queueCycle(each int) func(context.Context, *stage, int) (contender, error) {
	return func(_ context.Context, st *stage, n int) (contender, error) {
		s, q, shut, err := openQueue(st, prefix())
		if err != nil {
			return nil, err
		}
		return &driven{
			shape: st.shape(n), each: each, sent: s.requests, etcd: st.etcdTime(), shut: shut,
			step: func(ctx context.Context, _ int) error {
				if _, err := q.EnqueueAll(ctx, items(each)); err != nil {
					return err
				}
				for left := each; left > 0; {
					b, err := q.Claim(ctx, left)
					if err != nil {
						return err
					}
					left -= len(b.Deliveries)
					if err := completeAll(ctx, b.Deliveries); err != nil {
						return err
					}
				}
				return nil
			},
		}, nil
	}
}

func items(n int) (all []queue.Item) {
	for range n {
		all = append(all, queue.NewItem([]byte("payload")))
	}
	return all
}

func completeAll(ctx context.Context, leases []*queue.Delivery) error {
	errs := make([]error, len(leases))
	var all sync.WaitGroup
	for i, l := range leases {
		all.Go(func() { errs[i] = l.Complete(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func queueEnqueue(_ context.Context, st *stage, n int) (contender, error) {
	s, q, shut, err := openQueue(st, prefix())
	if err != nil {
		return nil, err
	}
	return &driven{
		shape: st.shape(n), sent: s.requests, etcd: st.etcdTime(), shut: shut,
		step: func(ctx context.Context, _ int) error {
			_, err := q.Enqueue(ctx, queue.NewItem([]byte("payload")))
			return err
		},
	}, nil
}

// bareCycle sends as many writes as an item needs, with nothing around them.
func bareCycle(_ context.Context, st *stage, n int) (contender, error) {
	s, err := share(st)
	if err != nil {
		return nil, err
	}
	keys := names(prefix(), n)
	return &driven{
		shape: st.shape(n), sent: s.requests, etcd: st.etcdTime(),
		step: func(ctx context.Context, who int) error {
			for range 2 {
				if _, err := s.etcd.Put(ctx, keys[who], "payload"); err != nil {
					return err
				}
			}
			_, err := s.etcd.Delete(ctx, keys[who])
			return err
		},
		shut: func() { hangUp(s.etcd) },
	}, nil
}

// pickUps is how long an item takes from the call that enqueues it to a worker that
// waits for one, in another client.
func pickUps(options) workload {
	w := workload{
		name: "pickup", of: "workers", compare: p50,
		title:   "From the call that enqueues an item to the worker that has it, while workers of another client wait",
		columns: []metric{p50, p99, rate, requests},
	}
	for _, n := range []int{1, 64} {
		w.points = append(w.points, point{name: count(n, "worker"), n: n, rows: []row{
			{name: "etcdclaims/queue", open: pickUpItem},
			{name: "asynq, Redis fsync always", open: pickUpPeer(load.Asynq, redisDurable)},
			{name: "River, Postgres", open: pickUpPeer(load.River, postgres)},
			{name: "list behind a Mutex, watched", open: pickUpFromList},
			{name: "limit: a put that a watch reports", reference: true, open: pickUpPut},
		}})
	}
	return w
}

func pickUpItem(_ context.Context, st *stage, n int) (contender, error) {
	space := prefix()
	s, enqueuer, shut, err := openQueue(st, space)
	if err != nil {
		return nil, err
	}
	_, waiter, shutWaiter, err := openQueue(st, space)
	if err != nil {
		shut()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var workers sync.WaitGroup
	got := make(chan struct{}, n)
	for range n {
		workers.Go(func() {
			for ctx.Err() == nil {
				b, err := waiter.Claim(ctx, 1)
				if err != nil {
					continue
				}
				got <- struct{}{}
				_ = completeAll(ctx, b.Deliveries) // an item that is not completed comes again, as an outlier
			}
		})
	}
	return &driven{
		shape: st.shape(1), sent: s.requests, etcd: st.etcdTime(),
		step: func(ctx context.Context, _ int) error {
			if _, err := enqueuer.Enqueue(ctx, queue.NewItem([]byte("payload"))); err != nil {
				return err
			}
			return heard(ctx, got)
		},
		shut: func() {
			cancel()
			workers.Wait()
			shutWaiter()
			shut()
		},
	}, nil
}

// heard waits for word.
func heard(ctx context.Context, got <-chan struct{}) error {
	select {
	case <-got:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pickUpPut puts a key that another client watches.
func pickUpPut(_ context.Context, st *stage, _ int) (contender, error) {
	s, err := share(st)
	if err != nil {
		return nil, err
	}
	t, err := share(st)
	if err != nil {
		hangUp(s.etcd)
		return nil, err
	}
	key := prefix()
	ctx, cancel := context.WithCancel(context.Background())
	news := t.etcd.Watch(ctx, key)
	got := make(chan struct{}, 1)
	go func() {
		for resp := range news {
			for range resp.Events {
				got <- struct{}{}
			}
		}
	}()
	return &driven{
		shape: st.shape(1), sent: s.requests, etcd: st.etcdTime(),
		step: func(ctx context.Context, _ int) error {
			if _, err := s.etcd.Put(ctx, key, "payload"); err != nil {
				return err
			}
			return heard(ctx, got)
		},
		shut: func() {
			cancel()
			hangUp(s.etcd)
			hangUp(t.etcd)
		},
	}, nil
}
