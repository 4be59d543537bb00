package main

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
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
	return sessionsOn(ctx, st, n, n, func(_ *clientv3.Client, s *concurrency.Session, own string) func(context.Context) error {
		mutex := recipe.NewRWMutex(s, own)
		return func(context.Context) error { // its calls take no context
			if err := mutex.RLock(); err != nil {
				return err
			}
			return mutex.RUnlock()
		}
	})
}
