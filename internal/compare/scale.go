package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// What one etcd bears, and how costs grow: with the clients that share the work, with the
// callers that wait, and with the items of a queue. holding does the same for claims that
// are held.

// spread is the cycles of one number of goroutines, by more and more clients: each client
// has round trips of its own, so etcd has more requests with less in each.
func spread(options) workload {
	const goroutines = 256
	w := workload{
		name: "spread", of: "clients", compare: rate,
		title:   fmt.Sprintf("Acquire and release by %d goroutines that clients share; ratios of rates to Mutex", goroutines),
		columns: []metric{rate, ratio, p50, p99, requests, clientCPU, etcdCPU},
	}
	for _, n := range []int{1, 4, 16, 64, 256} {
		w.points = append(w.points, point{name: count(n, "client"), n: n, rows: []row{
			{name: claimsRow, open: spreadClaims(goroutines)},
			{name: "etcd Mutex, a session for each client", reference: true, open: spreadMutexes(goroutines)},
		}})
	}
	return w
}

func spreadClaims(goroutines int) func(context.Context, *stage, int) (contender, error) {
	return func(_ context.Context, st *stage, n int) (contender, error) {
		f, err := newFleet(st, n)
		if err != nil {
			return nil, err
		}
		clients, at := make([]*etcdclaims.Client, n), prefix()
		for i := range clients {
			if clients[i], err = etcdclaims.New(f.of(i), etcdclaims.Config{Prefix: at}); err != nil {
				f.close()
				return nil, err
			}
		}
		keys := names("key/", goroutines)
		return &driven{
			shape: st.shape(goroutines), sent: f.requests, etcd: st.etcdTime(),
			step: func(ctx context.Context, who int) error {
				claim, err := clients[who%n].TryAcquire(ctx, keys[who])
				if err != nil {
					return err
				}
				return claim.Release(ctx)
			},
			shut: func() {
				var all sync.WaitGroup
				for _, c := range clients {
					all.Go(func() { closeClaims(context.Background(), c) })
				}
				all.Wait()
				f.close()
			},
		}, nil
	}
}

func spreadMutexes(goroutines int) func(context.Context, *stage, int) (contender, error) {
	return func(ctx context.Context, st *stage, n int) (contender, error) {
		f, err := newFleet(st, n)
		if err != nil {
			return nil, err
		}
		sessions, end, err := f.sessions(ctx, n)
		if err != nil {
			return nil, err
		}
		keys := names(prefix(), goroutines)
		return &driven{
			shape: st.shape(goroutines), sent: f.requests, etcd: st.etcdTime(), shut: end,
			step: func(ctx context.Context, who int) error {
				m := concurrency.NewMutex(sessions[who%n], keys[who])
				if err := m.Lock(ctx); err != nil {
					return err
				}
				return m.Unlock(ctx)
			},
		}, nil
	}
}

// waitersPerKey is how many callers wait for each key.
const waitersPerKey = 10

// waiting is what it costs to wait for keys that others hold.
func waiting(o options) workload {
	w := workload{
		name: "waiting", of: "waiters", rounds: 1,
		title: fmt.Sprintf("Callers of one client that wait for keys of another for %v, %d for each key; a Mutex has a watch for each caller",
			o.held.hold, waitersPerKey),
		columns: []metric{claimed, within, memory, goroutines, requesting, perThing, traffic, cpu, etcdShare},
	}
	for _, n := range o.held.waiters {
		w.points = append(w.points, point{name: count(n, "waiter"), n: n, rows: []row{
			{name: claimsRow, open: holder(o.held, n, waitForClaims)},
			{name: "etcd Mutex, a session for each key", open: holder(o.held, n, waitForMutexes)},
		}})
	}
	return w
}

// joiners is how many callers join at a time: what is measured is waiting.
const joiners = 2000

// inLine starts n calls that wait, and returns what ends them. inEtcd counts those that
// have a place in line.
func inLine(ctx context.Context, n int, wait func(ctx context.Context, i int) error, inEtcd func(context.Context) (int64, error)) (end func(), err error) {
	waiting, cancel := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	end = func() { cancel(nil); all.Wait() }
	for i := range n {
		all.Go(func() {
			if err := wait(waiting, i); waiting.Err() == nil {
				cancel(cmp.Or(err, errors.New("a key was had that another holds")))
			}
		})
		if i%joiners == joiners-1 || i == n-1 {
			if err := until(waiting, int64(i+1), inEtcd); err != nil {
				end()
				return nil, err
			}
		}
	}
	return end, nil
}

// until waits until something has been counted n times.
func until(ctx context.Context, n int64, count func(context.Context) (int64, error)) error {
	for {
		switch got, err := count(ctx); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case got >= n:
			return nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return context.Cause(ctx)
		}
	}
}

func waitForClaims(ctx context.Context, etcd *clientv3.Client, n int) (func(), error) {
	at := prefix()
	held, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: at})
	if err != nil {
		return nil, err
	}
	keys := names("invoice/2026/", n/waitersPerKey)
	if _, errs := held.TryAcquireEach(ctx, keys); errors.Join(errs...) != nil {
		closeClaims(context.Background(), held)
		return nil, errors.Join(errs...)
	}
	c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: at})
	if err != nil {
		closeClaims(context.Background(), held)
		return nil, err
	}
	end, err := inLine(ctx, n, func(ctx context.Context, i int) error {
		_, err := c.Acquire(ctx, keys[i%len(keys)])
		return err
	}, counting(etcd, at+"wait/"))
	drop := func() {
		closeClaims(context.Background(), c)
		closeClaims(context.Background(), held)
	}
	if err != nil {
		drop()
		return nil, err
	}
	return func() { end(); drop() }, nil
}

func counting(etcd *clientv3.Client, at string) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		resp, err := etcd.Get(ctx, at, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return 0, err
		}
		return resp.Count, nil
	}
}

func waitForMutexes(ctx context.Context, etcd *clientv3.Client, n int) (func(), error) {
	at := prefix()
	keys := names(at, n/waitersPerKey)
	// A session has one place in the line of a key.
	sessions := make([]*concurrency.Session, 1+waitersPerKey)
	drop := func() {
		for _, s := range sessions {
			if s != nil {
				s.Orphan()
			}
		}
	}
	for i := range sessions {
		var err error
		if sessions[i], err = session(ctx, etcd); err != nil {
			drop()
			return nil, err
		}
	}
	if err := each(64, len(keys), func(i int) error { return concurrency.NewMutex(sessions[0], keys[i]).Lock(ctx) }); err != nil {
		drop()
		return nil, err
	}
	inEtcd := counting(etcd, at)
	end, err := inLine(ctx, n, func(ctx context.Context, i int) error {
		return concurrency.NewMutex(sessions[1+i/len(keys)], keys[i%len(keys)]).Lock(ctx)
	}, func(ctx context.Context) (int64, error) {
		got, err := inEtcd(ctx)
		return got - int64(len(keys)), err
	})
	if err != nil {
		drop()
		return nil, err
	}
	return func() { end(); drop() }, nil
}

// depths is what calls cost in a queue that has many items already.
func depths(o options) workload {
	w := workload{
		name: "depth", of: "items", compare: p50,
		title:   "One worker that enqueues an item, claims the first and completes it, in a queue with items; ratios of times to a bare put, read of the first key, and deletion",
		columns: []metric{rate, ratio, p50, p99, requests, clientCPU, etcdCPU, statsTime},
	}
	for _, n := range o.held.items {
		w.points = append(w.points, point{name: count(n, "item"), n: n, rows: []row{
			{name: "etcdclaims/queue", open: deepQueue},
			{name: "limit: a put, a read of the first key, a delete", reference: true, open: deepKeys},
		}})
	}
	return w
}

// deep is a contender with a call of its own beside its steps.
type deep struct {
	driven
	stats func(ctx context.Context) error
}

func (d *deep) measure(ctx context.Context) (sample, error) {
	s, err := d.driven.measure(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	for range 10 {
		if err := d.stats(ctx); err != nil {
			return nil, err
		}
	}
	s[statsTime] = time.Since(began).Seconds() * 100 // ms, of one of ten
	return s, nil
}

func deepQueue(ctx context.Context, st *stage, n int) (contender, error) {
	s, q, shut, err := openQueue(st, prefix())
	if err != nil {
		return nil, err
	}
	if err := each(16, n/100, func(int) error { _, err := q.EnqueueAll(ctx, items(100)); return err }); err != nil {
		shut()
		return nil, err
	}
	return &deep{
		driven: driven{
			shape: st.shape(1), sent: s.requests, etcd: st.etcdTime(), shut: shut,
			step: func(ctx context.Context, _ int) error {
				if _, err := q.Enqueue(ctx, queue.NewItem([]byte("payload"))); err != nil {
					return err
				}
				b, err := q.TryClaim(ctx, 1)
				if err != nil {
					return err
				}
				return completeAll(ctx, b.Deliveries)
			},
		},
		stats: func(ctx context.Context) error { _, err := q.Stats(ctx); return err },
	}, nil
}

func deepKeys(ctx context.Context, st *stage, n int) (contender, error) {
	s, err := share(st)
	if err != nil {
		return nil, err
	}
	at := prefix()
	if err := each(64, n, func(i int) error { _, err := s.etcd.Put(ctx, fmt.Sprintf("%s%020d", at, i), "payload"); return err }); err != nil {
		hangUp(s.etcd)
		return nil, err
	}
	count := counting(s.etcd, at)
	next := n
	return &deep{
		driven: driven{
			shape: st.shape(1), sent: s.requests, etcd: st.etcdTime(), shut: func() { hangUp(s.etcd) },
			step: func(ctx context.Context, _ int) error {
				next++
				if _, err := s.etcd.Put(ctx, fmt.Sprintf("%s%020d", at, next), "payload"); err != nil {
					return err
				}
				first, err := s.etcd.Get(ctx, at, clientv3.WithPrefix(), clientv3.WithLimit(1))
				if err != nil {
					return err
				}
				_, err = s.etcd.Delete(ctx, string(first.Kvs[0].Key))
				return err
			},
		},
		stats: func(ctx context.Context) error { _, err := count(ctx); return err },
	}, nil
}
