package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/retry"
)

// failOvers is how soon the next in line owns what a holder had whose connection ends, as
// the kernel ends that of a process that is killed. The holder sends nothing after that.
func failOvers() workload {
	w := workload{
		name: "fail-over", compare: p50, rounds: 1,
		title: fmt.Sprintf("From the end of a holder's connection to the next owner, TTL %v; ratios of times to Mutex",
			etcdclaims.DefaultTTL),
	}
	for _, n := range []int{1, 1000} {
		w.points = append(w.points, point{name: fmt.Sprintf("%d of one client", n), n: n, rows: []row{
			{name: "etcdclaims, Suspectable", measure: claimOwner(etcdclaims.Suspectable()).measure},
			{name: claimsRow, measure: claimOwner().measure},
			{name: mutexRow, reference: true, measure: maker(mutexOwner).measure},
		}})
	}
	return w
}

// An owner acquires a key, and keeps it.
type owner func(ctx context.Context, key string) error

// A maker makes the owner of a connection. end ends it, and waits for etcd only as long as
// the context lasts.
type maker func(ctx context.Context, etcd *clientv3.Client, prefix string) (own owner, end func(context.Context), err error)

func claimOwner(opts ...etcdclaims.AcquireOption) maker {
	return func(_ context.Context, etcd *clientv3.Client, prefix string) (owner, func(context.Context), error) {
		c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix})
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, key string) error {
			_, err := c.Acquire(ctx, key, opts...)
			return err
		}, func(ctx context.Context) { _ = c.Close(ctx) }, nil
	}
}

func mutexOwner(_ context.Context, etcd *clientv3.Client, prefix string) (owner, func(context.Context), error) {
	s, err := session(etcd)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, key string) error {
		return concurrency.NewMutex(s, prefix+key).Lock(ctx)
	}, func(context.Context) { s.Orphan() }, nil
}

// measure has several holders of n keys die at random moments of their renewals.
func (m maker) measure(ctx context.Context, st *stage, n int) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	deaths := st.deaths
	if n > 1 {
		deaths = 2
	}
	var mu sync.Mutex
	var all []float64
	if err := each(deaths, deaths, func(int) error {
		took, err := m.once(ctx, st, n)
		mu.Lock()
		all = append(all, took...)
		mu.Unlock()
		return err
	}); err != nil {
		return nil, err
	}
	slices.Sort(all)
	return sample{p50: median(all), p99: all[len(all)*99/100]}, nil
}

// acquire has each key acquired, all at once, and returns when each was had.
func (own owner) acquire(ctx context.Context, n int) ([]time.Time, error) {
	had := make([]time.Time, n)
	return had, each(n, n, func(i int) error {
		err := own(ctx, fmt.Sprintf("key/%04d", i))
		had[i] = time.Now()
		return err
	})
}

// once has one holder die. It returns how long each of its keys took, in ms.
func (m maker) once(ctx context.Context, st *stage, n int) ([]float64, error) {
	fleet, err := newFleet(st, 2)
	if err != nil {
		return nil, err
	}
	defer fleet.close()
	at := prefix()
	holder, endHolder, err := m(ctx, fleet.of(0), at)
	if err != nil {
		return nil, err
	}
	dead, cancel := context.WithCancel(ctx)
	defer endHolder(dead)
	defer cancel()
	if _, err := holder.acquire(ctx, n); err != nil {
		return nil, err
	}
	waiter, endWaiter, err := m(ctx, fleet.of(1), at)
	if err != nil {
		return nil, err
	}
	defer endWaiter(ctx)
	var owned []time.Time
	waited := make(chan error, 1)
	go func() {
		var err error
		owned, err = waiter.acquire(ctx, n)
		waited <- err
	}()
	// Long enough for watches to begin.
	retry.Sleep(ctx, time.Second+rand.N(etcdclaims.DefaultTTL/3))
	died := time.Now()
	hangUp(fleet.of(0))
	if err = errors.Join(ctx.Err(), <-waited); err != nil {
		return nil, err
	}
	took := make([]float64, len(owned))
	for i, at := range owned {
		if took[i] = at.Sub(died).Seconds() * 1000; took[i] < 0 {
			return nil, errors.New("a key had another owner before its holder died")
		}
	}
	return took, nil
}
