package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdclaims/claims/etcdclaims"
)

// holding is what it costs to hold many claims and do nothing else. It is
// measured once: it takes long, and what it measures hardly varies.
func holding(o options) workload {
	h := o.held
	w := workload{
		name: "holding", of: "claims", rounds: 1,
		title: fmt.Sprintf("Holding claims for %v, TTL %v; a session for each lock is held %s times at most, so compare what is of each",
			h.hold, etcdclaims.DefaultTTL, thousands(int64(h.sessions))),
		columns: []metric{claimed, within, memory, goroutines, requesting, perThing, traffic, cpu, etcdShare},
	}
	for _, n := range h.claims {
		w.points = append(w.points, point{name: count(n, "claim"), n: n, rows: []row{
			{name: claimsRow, open: holder(h, n, holdClaims)},
			{name: "etcd Mutex, a session per lock", open: holder(h, min(n, h.sessions), holdSessions)},
		}})
	}
	return w
}

// held is a contender that holds n of something.
type held struct {
	heldOptions
	n    int
	st   *stage
	take func(ctx context.Context, etcd *clientv3.Client, n int) (drop func(), err error)
}

func holder(h heldOptions, n int, take func(context.Context, *clientv3.Client, int) (func(), error)) func(context.Context, *stage, int) (contender, error) {
	return func(_ context.Context, st *stage, _ int) (contender, error) {
		return &held{heldOptions: h, n: n, st: st, take: take}, nil
	}
}

func (h *held) close() {}

func (h *held) measure(ctx context.Context) (sample, error) {
	w := new(wire)
	etcd, err := w.dial(h.st, metered)
	if err != nil {
		return nil, err
	}
	defer hangUp(etcd)
	if _, err := etcd.Get(ctx, "connected"); err != nil { // what the connection takes is not the claims'
		return nil, err
	}
	before := takeStock()

	began := time.Now()
	drop, err := h.take(ctx, etcd, h.n)
	if err != nil {
		return nil, err
	}
	defer drop()
	took := time.Since(began)
	if err := sleep(ctx, h.settle); err != nil {
		return nil, err
	}
	after := takeStock()

	etcdTime := h.st.etcdTime()
	sent, bytes, used, etcdUsed := w.sent.Load(), w.bytes.Load(), cpuTime(), etcdTime()
	if err := sleep(ctx, h.hold); err != nil {
		return nil, err
	}
	seconds, n := h.hold.Seconds(), float64(h.n)
	asked := float64(w.sent.Load()-sent) / seconds
	s := sample{
		claimed:    n,
		within:     took.Seconds(),
		memory:     (after.bytes - before.bytes) / n,
		goroutines: after.goroutines - before.goroutines,
		requesting: asked,
		perThing:   asked / n,
		traffic:    float64(w.bytes.Load()-bytes) / 1024 / seconds,
	}
	if used > 0 {
		s[cpu] = (cpuTime() - used).Seconds() / seconds * 100
	}
	if now := etcdTime(); now > 0 {
		s[etcdShare] = time.Duration(now-etcdUsed).Seconds() / seconds * 100
	}
	return s, nil
}

// A stock is what this process uses for the time being.
type stock struct{ bytes, goroutines float64 }

// takeStock counts what is in use, not what the garbage collector has yet to
// find. Stacks count: a peer has goroutines for each of its locks.
func takeStock() stock {
	runtime.GC()
	runtime.GC() // what had finalizers, and the pools' victims
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return stock{bytes: float64(m.HeapAlloc + m.StackInuse), goroutines: float64(runtime.NumGoroutine())}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// holdClaims keeps what a user has to: each Claim, and through it the key.
func holdClaims(ctx context.Context, etcd *clientv3.Client, n int) (func(), error) {
	c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix()})
	if err != nil {
		return nil, err
	}
	claims := make([]*etcdclaims.Claim, 0, n)
	for keys := range slices.Chunk(names("invoice/2026/", n), 5000) {
		got, errs := c.TryAcquireEach(ctx, keys)
		if err := errors.Join(errs...); err != nil {
			closeClaims(context.Background(), c)
			return nil, err
		}
		claims = append(claims, got...)
	}
	return func() {
		closeClaims(context.Background(), c)
		runtime.KeepAlive(claims)
	}, nil
}

func holdSessions(ctx context.Context, etcd *clientv3.Client, n int) (func(), error) {
	mutexes, sessions := make([]*concurrency.Mutex, n), make([]*concurrency.Session, n)
	keys := names(prefix()+"invoice/2026/", n)
	drop := func() {
		// Not revoked one by one: etcd and all that is in it are gone after this.
		for _, s := range sessions {
			if s != nil {
				s.Orphan()
			}
		}
		runtime.KeepAlive(mutexes)
	}
	if err := each(64, n, func(i int) (err error) {
		if sessions[i], err = session(ctx, etcd); err != nil {
			return err
		}
		mutexes[i] = concurrency.NewMutex(sessions[i], keys[i])
		return mutexes[i].Lock(ctx)
	}); err != nil {
		drop()
		return nil, err
	}
	return drop, nil
}
