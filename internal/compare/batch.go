package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// batches is many keys claimed by one call, and released by one.
func batches(o options) workload {
	w := workload{
		name: "batch", of: "keys", compare: rate,
		title:   "TryAcquireEach of many keys, and ReleaseAll: cycles of a key; ratios of rates to the nested limit of the same shape",
		columns: []metric{rate, ratio, claiming, requests},
	}
	sizes := []int{1000, 10_000}
	if !o.quick {
		sizes = append(sizes, 50_000)
	}
	for _, n := range sizes {
		w.points = append(w.points, point{name: count(n, "key"), n: n, rows: []row{
			{name: "etcdclaims, TryAcquireEach", open: batchClaims},
			{name: nestedRow + ", one at a time", reference: true, open: batchNested},
		}})
	}
	return w
}

// batch claims and frees all keys, again and again for as long as a window.
type batch struct {
	*shared
	keys    []string
	window  time.Duration
	warm    bool
	acquire func(ctx context.Context) error
	release func(ctx context.Context) error
	shut    func()
}

func (b *batch) close() {
	b.shut()
	hangUp(b.etcd)
}

func (b *batch) measure(ctx context.Context) (sample, error) {
	if !b.warm { // sessions are to be open, and memory to be there
		if _, _, err := b.once(ctx); err != nil {
			return nil, err
		}
		b.warm = true
	}
	before := b.requests()
	var acquiring, releasing time.Duration
	n := 0.0
	for acquiring+releasing < b.window {
		a, r, err := b.once(ctx)
		if err != nil {
			return nil, err
		}
		acquiring, releasing, n = acquiring+a, releasing+r, n+float64(len(b.keys))
	}
	return sample{
		rate:     n / (acquiring + releasing).Seconds(),
		claiming: n / acquiring.Seconds(),
		requests: float64(b.requests()-before) / n,
	}, nil
}

func (b *batch) once(ctx context.Context) (acquiring, releasing time.Duration, err error) {
	began := time.Now()
	if err := b.acquire(ctx); err != nil {
		return 0, 0, err
	}
	acquired := time.Now()
	err = b.release(ctx)
	return acquired.Sub(began), time.Since(acquired), err
}

func batchClaims(_ context.Context, st *stage, n int) (contender, error) {
	s, c, err := shareClaims(st)
	if err != nil {
		return nil, err
	}
	b := &batch{shared: s, keys: names("key/", n), window: st.window, shut: func() { closeClaims(context.Background(), c) }}
	b.acquire = func(ctx context.Context) error {
		_, errs := c.TryAcquireEach(ctx, b.keys)
		return errors.Join(errs...)
	}
	b.release = func(ctx context.Context) error {
		released, err := c.ReleaseAll(ctx)
		if err == nil && released != n {
			err = fmt.Errorf("released %d of %d claims", released, n)
		}
		return err
	}
	return b, nil
}

// batchNested does the same with transactions as full as etcd allows.
func batchNested(ctx context.Context, st *stage, n int) (contender, error) {
	s, all, err := shareSession(ctx, st)
	if err != nil {
		return nil, err
	}
	b := &batch{shared: s, keys: names(prefix()+"own/key/", n), window: st.window, shut: func() { _ = all.Close() }}
	parts := slices.Collect(slices.Chunk(b.keys, perTxn))
	revs := make([]int64, len(parts))
	b.acquire = func(ctx context.Context) (err error) {
		for i := 0; i < len(parts) && err == nil; i++ {
			revs[i], err = claimNested(ctx, s.etcd, parts[i], all.Lease())
		}
		return err
	}
	b.release = func(ctx context.Context) (err error) {
		for i := 0; i < len(parts) && err == nil; i++ {
			err = freeNested(ctx, s.etcd, parts[i], revs[i])
		}
		return err
	}
	return b, nil
}

// each calls do for 0 to n-1, so many at once.
func each(atOnce, n int, do func(i int) error) error {
	next := make(chan int)
	errs := make([]error, n)
	var workers sync.WaitGroup
	for range min(atOnce, n) {
		workers.Go(func() {
			for i := range next {
				errs[i] = do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
	return errors.Join(errs...)
}
