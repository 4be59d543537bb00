package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdclaims/claims/etcdclaims"
)

// wakeUps is how soon the next in line owns the key of a holder that died: from
// when a watch tells that the key is gone, to when the waiter's call returns.
// How long etcd takes to let the lease of a dead holder lapse is not in it.
func wakeUps() workload {
	return workload{
		name: "wake-up", of: "waiters", compare: p50,
		title:   "From the end of a dead holder's lease to the next owner; ratios of times to Mutex",
		columns: []metric{p50, ratio, longest},
		points: []point{{name: "1 waiter", n: 1, rows: []row{
			{name: claimsRow, aims: []aim{atMost(p50, 5)}, open: wakeUpClaims},
			{name: "etcd Mutex, a session each", reference: true, open: wakeUpMutexes},
		}}},
	}
}

// A death is one holder, and one who waits for its key.
type death struct {
	lease clientv3.LeaseID // of the holder
	kill  func()           // cuts the holder off
	wait  func(ctx context.Context) error
	// waits says whether the waiter is in line.
	waits func(ctx context.Context) (bool, error)
	done  func()
}

// mourner is a contender that has holders die.
type mourner struct {
	*fleet // for the watch; for the waiters
	deaths int
	// prepare makes a holder own a key under the prefix.
	prepare func(ctx context.Context, prefix, key string) (*death, error)
}

// settled is how long waiters have been waiting when a holder dies: long enough
// for a watch that began late to have caught up.
const settled = 300 * time.Millisecond

func (m *mourner) measure(ctx context.Context) (_ sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	own, etcd := prefix(), m.of(0)
	var all []*death
	defer func() {
		for _, d := range all {
			d.done()
		}
	}()
	for i := range m.deaths {
		d, err := m.prepare(ctx, own, fmt.Sprintf("key-%d", i))
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	owned := make([]chan error, len(all))
	at := make([]time.Time, len(all))
	for i, d := range all {
		owned[i] = make(chan error, 1)
		waiting.Go(func() {
			err := d.wait(ctx)
			at[i] = time.Now()
			owned[i] <- err
		})
	}
	for _, d := range all {
		if err := inLine(ctx, d); err != nil {
			return nil, err
		}
		d.kill()
	}
	gone, err := watchEnds(ctx, etcd, own)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, settled); err != nil {
		return nil, err
	}

	var took []float64
	for i, d := range all {
		resp, err := etcd.Revoke(ctx, d.lease)
		if err != nil {
			return nil, err
		}
		if err := <-owned[i]; err != nil {
			return nil, err
		}
		when, err := gone.at(ctx, resp.Header.Revision)
		if err != nil {
			return nil, err
		}
		// The waiter may hear of it before the watch does.
		took = append(took, max(0, float64(at[i].Sub(when))/float64(time.Millisecond)))
	}
	return sample{p50: median(took), longest: slices.Max(took)}, nil
}

func inLine(ctx context.Context, d *death) error {
	for {
		yes, err := d.waits(ctx)
		if yes || err != nil {
			return err
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// ends are the times at which a watch told of deletions, by their revisions.
type ends struct {
	mu   sync.Mutex
	seen map[int64]time.Time
	news chan struct{} // something was seen
}

// watchEnds watches all that is under the prefix from now on.
func watchEnds(ctx context.Context, etcd *clientv3.Client, prefix string) (*ends, error) {
	resp, err := etcd.Get(ctx, prefix)
	if err != nil {
		return nil, err
	}
	e := &ends{seen: map[int64]time.Time{}, news: make(chan struct{}, 1)}
	watch := etcd.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1), clientv3.WithFilterPut())
	go func() {
		for resp := range watch { // until ctx ends
			now := time.Now()
			e.mu.Lock()
			for _, ev := range resp.Events {
				if _, ok := e.seen[ev.Kv.ModRevision]; !ok {
					e.seen[ev.Kv.ModRevision] = now
				}
			}
			e.mu.Unlock()
			select {
			case e.news <- struct{}{}:
			default:
			}
		}
	}()
	return e, nil
}

func (e *ends) at(ctx context.Context, rev int64) (time.Time, error) {
	for {
		e.mu.Lock()
		when, ok := e.seen[rev]
		e.mu.Unlock()
		if ok {
			return when, nil
		}
		select {
		case <-e.news:
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

func wakeUpClaims(_ context.Context, st *stage, _ int) (contender, error) {
	f, err := newFleet(st, 2)
	if err != nil {
		return nil, err
	}
	m := &mourner{fleet: f, deaths: st.deaths}
	m.prepare = func(ctx context.Context, prefix, key string) (*death, error) {
		connection, err := f.dial(st, plain)
		if err != nil {
			return nil, err
		}
		cfg := etcdclaims.Config{Prefix: prefix}
		holder, err := etcdclaims.New(connection, cfg)
		var waiter *etcdclaims.Client
		if err == nil {
			waiter, err = etcdclaims.New(f.of(1), cfg)
		}
		if err == nil {
			_, err = holder.TryAcquire(ctx, key)
		}
		var info etcdclaims.Info
		if err == nil {
			info, err = waiter.Lookup(ctx, key)
		}
		if err != nil {
			hangUp(connection)
			return nil, err
		}
		return &death{
			lease: info.Lease,
			kill:  func() { hangUp(connection) },
			wait: func(ctx context.Context) error {
				_, err := waiter.Acquire(ctx, key)
				return err
			},
			waits: func(ctx context.Context) (bool, error) {
				info, err := waiter.Lookup(ctx, key)
				return info.Waiting > 0, err
			},
			done: func() {
				hangUp(connection)
				gone, cancel := context.WithCancel(context.Background())
				cancel()
				_ = holder.Close(gone) // it cannot tell anybody
				closeClaims(waiter)
			},
		}, nil
	}
	return m, nil
}

func wakeUpMutexes(_ context.Context, st *stage, _ int) (contender, error) {
	f, err := newFleet(st, 2)
	if err != nil {
		return nil, err
	}
	m := &mourner{fleet: f, deaths: st.deaths}
	m.prepare = func(ctx context.Context, prefix, key string) (*death, error) {
		connection, err := f.dial(st, plain)
		if err != nil {
			return nil, err
		}
		holder, err := session(ctx, connection)
		if err == nil {
			err = concurrency.NewMutex(holder, prefix+key).Lock(ctx)
		}
		var waiter *concurrency.Session
		if err == nil {
			waiter, err = session(ctx, f.of(1))
		}
		if err != nil {
			hangUp(connection)
			return nil, err
		}
		return &death{
			lease: holder.Lease(),
			kill:  func() { hangUp(connection) },
			wait:  func(ctx context.Context) error { return concurrency.NewMutex(waiter, prefix+key).Lock(ctx) },
			waits: func(ctx context.Context) (bool, error) {
				resp, err := f.of(0).Get(ctx, prefix+key+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
				return err == nil && resp.Count > 1, err
			},
			done: func() {
				hangUp(connection)
				_ = waiter.Close() // what it leaves in etcd is gone with that
			},
		}, nil
	}
	return m, nil
}
