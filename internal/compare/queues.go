package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// queueBatch is how many items are enqueued, claimed and completed together.
const queueBatch = 32

// queues is items that are enqueued, claimed and completed. Each row guarantees something
// else: the queue that an item is completed once, by its holder; asynq and River that a job
// is not lost, and begun again by another if a worker seems to be dead, whose late
// acknowledgement counts; the list that no two take one item.
func queues() workload {
	w := workload{
		name: "queue", compare: rate,
		title: "Items enqueued, claimed and completed; ratios of rates to a list behind a Mutex; requests for each item",
	}
	for _, n := range []int{1, 16, 64} {
		w.points = append(w.points, point{name: fmt.Sprint(n, " workers"), n: n, rows: []row{
			{name: "etcdclaims/queue", measure: queueCycle(1, false)},
			{name: fmt.Sprintf("etcdclaims/queue, %d at a time", queueBatch), measure: queueCycle(queueBatch, false)},
			{name: fmt.Sprintf("its transactions alone, %d at a time", queueBatch), measure: drive(bareCycle)},
			{name: "asynq, Redis fsync always", measure: jobCycle(redisDurable, openAsynq, 1)},
			{name: "River, Postgres", measure: jobCycle(postgres, openRiver, 1)},
			{name: fmt.Sprintf("River, %d at a time", queueBatch), measure: jobCycle(postgres, openRiver, queueBatch)},
			{name: "list behind a Mutex", reference: true, measure: drive(listCycle)},
		}})
	}
	return w
}

// pickUps is how long an item takes from the call that enqueues it to a worker that waits
// for one, in another client. The peers are as they are by default.
func pickUps() workload {
	return workload{
		name: "pickup", compare: p50,
		title: "From the call that enqueues an item to the worker of another client that waits for it",
		points: []point{{name: "1 worker", n: 1, rows: []row{
			{name: "etcdclaims/queue", measure: drive(pickUpItem)},
			{name: "asynq, Redis fsync always", measure: pickUpJob(redisDurable, openAsynq)},
			{name: "River, Postgres", measure: pickUpJob(postgres, openRiver)},
		}}},
	}
}

// depths is what calls cost in a queue that has many items already.
func depths(o options) workload {
	w := workload{
		name: "depth", rounds: 1,
		title: "One worker that enqueues an item, claims the first and completes it, in a queue with items",
	}
	for _, n := range o.items {
		rows := []row{{name: "etcdclaims/queue", measure: queueCycle(1, true)}}
		w.points = append(w.points, point{name: fmt.Sprint(n, " items"), n: n, rows: rows})
	}
	return w
}

// openQueue returns a queue by a client of its own.
func openQueue(st *stage, prefix string) (*queue.Queue, *driven, error) {
	f, err := newFleet(st, 1)
	if err != nil {
		return nil, nil, err
	}
	c, err := etcdclaims.New(f.of(0), etcdclaims.Config{Prefix: prefix})
	var q *queue.Queue
	if err == nil {
		q, err = queue.New(c, queue.Config{Name: "compare"})
	}
	if err != nil {
		f.close()
		return nil, nil, err
	}
	return q, &driven{shape: st.shape(1), sent: f.sent.Load, shut: func() {
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		_ = q.Close(ctx) // what it leaves in etcd is gone with that
		closeClaims(c)
		f.close()
	}}, nil
}

// queueCycle has n workers enqueue some items each, and handle as many. In a deep queue one
// worker does, and there are n items before.
func queueCycle(some int, deep bool) measurer {
	return drive(func(ctx context.Context, st *stage, n int) (*driven, error) {
		q, d, err := openQueue(st, prefix())
		if err != nil {
			return nil, err
		}
		d.each = some
		if !deep {
			d.shape = st.shape(n)
		} else if err := each(16, n/100, func(int) error { _, err := q.EnqueueAll(ctx, items(100)); return err }); err != nil {
			d.shut()
			return nil, err
		}
		d.step = func(ctx context.Context, _ int) error {
			if _, err := q.EnqueueAll(ctx, items(some)); err != nil {
				return err
			}
			for left := some; left > 0; {
				b, err := q.Claim(ctx, left)
				if err != nil {
					return err
				}
				left -= len(b.Deliveries)
				if err := b.CompleteAll(ctx); err != nil {
					return err
				}
			}
			return nil
		}
		return d, nil
	})
}

func items(n int) (all []queue.Item) {
	for range n {
		all = append(all, queue.NewItem([]byte("payload")))
	}
	return all
}

func pickUpItem(_ context.Context, st *stage, n int) (*driven, error) {
	space := prefix()
	enqueuer, d, err := openQueue(st, space)
	if err != nil {
		return nil, err
	}
	waiter, other, err := openQueue(st, space)
	if err != nil {
		d.shut()
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
				_ = b.CompleteAll(ctx) // an item that is not completed comes again, as an outlier
			}
		})
	}
	d.step = func(ctx context.Context, _ int) error {
		if _, err := enqueuer.Enqueue(ctx, queue.NewItem([]byte("payload"))); err != nil {
			return err
		}
		return heard(ctx, got)
	}
	shut := d.shut
	d.shut = func() {
		cancel()
		workers.Wait()
		other.shut()
		shut()
	}
	return d, nil
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

// bareCycle has workers carry out the transactions of the queue on items, and nothing else: keys, values
// and conditions are as large and as many, but each worker knows its items, nobody watches, and nothing
// is parsed. So it is how fast etcd is with the keys that an item has.
func bareCycle(_ context.Context, st *stage, n int) (*driven, error) {
	f, err := newFleet(st, 1)
	if err != nil {
		return nil, err
	}
	etcd, space := f.of(0), prefix()
	content, waiting, taken := strings.Repeat("c", 190), strings.Repeat("w", 140), strings.Repeat("t", 270)
	commit := func(ctx context.Context, conditions []clientv3.Cmp, ops []clientv3.Op) (int64, error) {
		resp, err := etcd.Txn(ctx).If(conditions...).Then(ops...).Commit()
		if err == nil && !resp.Succeeded {
			err = errors.New("a transaction was refused")
		}
		if err != nil {
			return 0, err
		}
		return resp.Header.Revision, nil
	}
	return &driven{
		shape: st.shape(n), each: queueBatch, sent: f.sent.Load, shut: f.close,
		step: func(ctx context.Context, _ int) error {
			var ids []string
			var absent, ready, held []clientv3.Cmp
			var enqueue, claim, complete []clientv3.Op
			for range queueBatch {
				id := uuid.NewString()
				ids = append(ids, id)
				absent = append(absent, clientv3.Compare(clientv3.CreateRevision(space+"content/"+id), "=", 0))
				enqueue = append(enqueue,
					clientv3.OpPut(space+"content/"+id, content), clientv3.OpPut(space+"ready/"+id, waiting))
				claim = append(claim, clientv3.OpGet(space+"content/"+id),
					clientv3.OpDelete(space+"ready/"+id), clientv3.OpPut(space+"taken/"+id, taken))
				complete = append(complete,
					clientv3.OpDelete(space+"taken/"+id), clientv3.OpDelete(space+"content/"+id))
			}
			rev, err := commit(ctx, absent, enqueue)
			if err != nil {
				return err
			}
			for _, id := range ids {
				ready = append(ready, clientv3.Compare(clientv3.ModRevision(space+"ready/"+id), "=", rev))
			}
			if rev, err = commit(ctx, ready, claim); err != nil {
				return err
			}
			for _, id := range ids {
				held = append(held, clientv3.Compare(clientv3.ModRevision(space+"taken/"+id), "=", rev))
			}
			_, err = commit(ctx, held, complete)
			return err
		},
	}, nil
}

// listCycle has workers put an item below a prefix, and take the first one from there, each
// under one Mutex.
func listCycle(ctx context.Context, st *stage, n int) (*driven, error) {
	f, err := newFleet(st, 1)
	if err != nil {
		return nil, err
	}
	sessions, shut, err := f.sessions(1)
	if err != nil {
		return nil, err
	}
	etcd, lock, items, number := f.of(0), prefix(), prefix(), 0
	var turn sync.Mutex // workers of one session do not exclude each other by a Mutex of one key
	under := func(ctx context.Context, do func() error) error {
		turn.Lock()
		defer turn.Unlock()
		m := concurrency.NewMutex(sessions[0], lock)
		if err := m.Lock(ctx); err != nil {
			return err
		}
		return errors.Join(do(), m.Unlock(ctx))
	}
	return &driven{
		shape: st.shape(n), sent: f.sent.Load, shut: shut,
		step: func(ctx context.Context, _ int) error {
			if err := under(ctx, func() error {
				number++
				_, err := etcd.Put(ctx, fmt.Sprintf("%s%020d", items, number), "payload")
				return err
			}); err != nil {
				return err
			}
			return under(ctx, func() error {
				resp, err := etcd.Get(ctx, items, clientv3.WithPrefix(), clientv3.WithLimit(1))
				if err != nil || len(resp.Kvs) == 0 {
					return err
				}
				_, err = etcd.Delete(ctx, string(resp.Kvs[0].Key))
				return err
			})
		},
	}, nil
}
