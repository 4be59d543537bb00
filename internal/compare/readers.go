package main

import (
	"context"
	"fmt"

	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"

	"github.com/etcdclaims/claims/etcdclaims"
)

// readers is everybody sharing one key, and releasing it. Nobody waits. Claims guarantee
// that each reader has a fence between those of the writers before and after, and that
// writers and readers wait in one line; the recipe of etcd that no writer holds the key.
func readers(o options) workload {
	w := workload{
		name: "readers", of: "readers", compare: rate, rounds: o.lineRounds,
		title:   "One key shared by readers, each with a client of its own; ratios of rates to etcd's RWMutex; requests to etcd and µs of CPU for each acquisition and release",
		columns: []metric{rate, ratio, p50, p99, longest, requests, clientCPU, etcdCPU},
	}
	sizes := []int{16, 64, 256}
	if o.quick {
		sizes = []int{16, 64}
	}
	for _, n := range sizes {
		w.points = append(w.points, point{name: count(n, "reader"), n: n, rows: []row{
			{name: "etcdclaims, Shared", open: handOverClaims(false, etcdclaims.Shared())},
			{name: "etcdclaims, Shared, within one client", open: handOverClaims(true, etcdclaims.Shared())},
			{name: "etcdclaims, a key each", open: claimsOn(func(who int) string { return fmt.Sprint("key", who) }, false)},
			{name: "etcd RWMutex, a session each", reference: true, open: sharedRWMutexes},
		}})
	}
	return w
}

// sharedRWMutexes has a session for each reader, on a connection of its own.
func sharedRWMutexes(ctx context.Context, st *stage, n int) (contender, error) {
	f, err := newFleet(st, n)
	if err != nil {
		return nil, err
	}
	sessions, shut, err := f.sessions(ctx, n)
	if err != nil {
		return nil, err
	}
	own := prefix()
	mutexes := make([]*recipe.RWMutex, n)
	for i, s := range sessions {
		mutexes[i] = recipe.NewRWMutex(s, own)
	}
	return &driven{
		shape: handOverShape(st, n), sent: f.requests, etcd: st.etcdTime(),
		step: func(_ context.Context, who int) error { // its calls take no context
			if err := mutexes[who].RLock(); err != nil {
				return err
			}
			return mutexes[who].RUnlock()
		},
		shut: shut,
	}, nil
}
