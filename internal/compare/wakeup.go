package main

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdclaims/claims/etcdclaims"
)

// wakeUps is how soon the next in line owns the key of a holder that died: from
// the event that the holder's key is gone, to the return of the waiter's call. It
// does not contain how long etcd takes to end the lease of a dead holder.
func wakeUps() workload {
	return workload{
		name: "wake-up", of: "waiters", compare: p50,
		title:   "From the end of a dead holder's lease to the next owner; ratios of times to Mutex",
		columns: []metric{p50, ratio, longest},
		points: []point{{name: "1 waiter", n: 1, rows: []row{
			{name: claimsRow, open: wakeUpper(claimOnce)},
			{name: "etcd Mutex, a session each", reference: true, open: wakeUpper(lockOnce)},
		}}},
	}
}

// wakeUp is a contender whose holders die.
type wakeUp struct {
	*fleet // one connection for the watch, one for the waiters
	st     *stage
	// own acquires a key under the prefix on a connection, and returns its lease.
	// close ends its client.
	own func(ctx context.Context, etcd *clientv3.Client, prefix string) (lease clientv3.LeaseID, close func(context.Context), err error)
}

func wakeUpper(own func(context.Context, *clientv3.Client, string) (clientv3.LeaseID, func(context.Context), error)) func(context.Context, *stage, int) (contender, error) {
	return func(_ context.Context, st *stage, _ int) (contender, error) {
		f, err := newFleet(st, 2)
		return &wakeUp{fleet: f, st: st, own: own}, err
	}
}

// settled is how long a waiter has been waiting when the holder's lease ends: long
// enough for its watch to have begun.
const settled = 500 * time.Millisecond

func (w *wakeUp) measure(ctx context.Context) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var took []float64
	for range w.st.deaths {
		d, err := w.once(ctx)
		if err != nil {
			return nil, err
		}
		took = append(took, float64(d)/float64(time.Millisecond))
	}
	return sample{p50: median(took), longest: slices.Max(took)}, nil
}

// once lets one holder die.
func (w *wakeUp) once(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	own, holder := prefix(), new(wire)
	etcd, err := holder.dial(w.st, plain)
	if err != nil {
		cancel()
		return 0, err
	}
	lease, forget, err := w.own(ctx, etcd, own)
	hangUp(etcd) // the holder dies
	if err != nil {
		cancel()
		return 0, err
	}
	dead, cancelled := context.WithCancel(ctx)
	cancelled()
	forget(dead)
	type end struct {
		at  time.Time
		err error
	}
	owned := make(chan end, 1)
	go func() {
		_, forget, err := w.own(ctx, w.of(1), own)
		at := time.Now()
		if err == nil {
			forget(context.Background())
		}
		owned <- end{at, err}
	}()
	defer func() { <-owned }()
	defer cancel()
	if err := sleep(ctx, settled); err != nil {
		return 0, err
	}
	// Only the end of the lease deletes a key now.
	gone := w.of(0).Watch(ctx, own, clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	<-gone // it has begun
	died := make(chan time.Time, 1)
	go func() {
		for range gone {
			died <- time.Now()
			return
		}
	}()
	if _, err := w.of(0).Revoke(ctx, lease); err != nil {
		return 0, err
	}
	e := <-owned
	owned <- e
	if e.err != nil {
		return 0, e.err
	}
	select {
	case at := <-died:
		return max(0, e.at.Sub(at)), nil // the waiter may receive the event before the watch does
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func claimOnce(ctx context.Context, etcd *clientv3.Client, prefix string) (clientv3.LeaseID, func(context.Context), error) {
	c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix})
	if err != nil {
		return 0, nil, err
	}
	var info etcdclaims.Info
	if _, err = c.Acquire(ctx, "key"); err == nil {
		info, err = c.Lookup(ctx, "key")
	}
	return info.Lease, func(ctx context.Context) { closeClaims(ctx, c) }, err
}

func lockOnce(ctx context.Context, etcd *clientv3.Client, prefix string) (clientv3.LeaseID, func(context.Context), error) {
	s, err := session(ctx, etcd)
	if err != nil {
		return 0, nil, err
	}
	err = concurrency.NewMutex(s, prefix+"key").Lock(ctx)
	return s.Lease(), func(context.Context) { s.Orphan() }, err
}
