package main

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdclaims/claims/internal/compare/load"
)

// Names of rows that more than one workload or the chart knows.
const (
	claimsRow = "etcdclaims"
	mutexRow  = "etcd Mutex, a shared session"
	nestedRow = "limit: Txns of 127 nested claims"
)

// cycles is acquire and release, with nobody in the way.
func cycles(o options) workload {
	w := workload{
		name: "cycles", of: "goroutines", compare: rate,
		title:   "Acquire and release, each goroutine on a key of its own; ratios of rates to Mutex; requests to etcd and µs of CPU for each cycle",
		columns: []metric{rate, ratio, p50, p99, requests, clientCPU, etcdCPU},
	}
	sizes := []int{1, 16, 64, 256, 1024, 4096}
	if o.quick {
		sizes = []int{1, 16, 64, 256, 4096}
	}
	for _, n := range sizes {
		w.points = append(w.points, point{name: count(n, "goroutine"), n: n, rows: []row{
			{name: claimsRow, open: cycleClaims},
			{name: mutexRow, reference: true, open: cycleMutexes},
			{name: "redislock, Redis fsync always", open: cyclePeer(load.Redislock, redisDurable)},
			{name: "redislock, Redis without persistence", open: cyclePeer(load.Redislock, redisForgetful)},
			{name: "row lease with fence, Postgres", open: cyclePeer(load.RowLease, postgres)},
			{name: nestedRow, open: cycleNested},
		}})
	}
	return w
}

func count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case n < 10_000: // easier to match with -only
		return fmt.Sprintf("%d %ss", n, what)
	}
	return thousands(int64(n)) + " " + what + "s"
}

// cycleClaims has one client for all goroutines.
func cycleClaims(_ context.Context, st *stage, n int) (contender, error) {
	s, c, err := shareClaims(st)
	if err != nil {
		return nil, err
	}
	keys := names("key/", n)
	return &driven{
		shape: st.shape(n), sent: s.requests, etcd: st.etcdTime(),
		step: func(ctx context.Context, who int) error {
			claim, err := c.TryAcquire(ctx, keys[who])
			if err != nil {
				return err
			}
			return claim.Release(ctx)
		},
		shut: func() { closeClaims(context.Background(), c); hangUp(s.etcd) },
	}, nil
}

// names returns n keys.
func names(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return keys
}

// cycleMutexes has one session for all, which none of them ends.
func cycleMutexes(ctx context.Context, st *stage, n int) (contender, error) {
	s, all, err := shareSession(ctx, st)
	if err != nil {
		return nil, err
	}
	keys := names(prefix(), n)
	return &driven{
		shape: st.shape(n), sent: s.requests, etcd: st.etcdTime(),
		step: func(ctx context.Context, who int) error {
			m := concurrency.NewMutex(all, keys[who])
			if err := m.Lock(ctx); err != nil {
				return err
			}
			return m.Unlock(ctx)
		},
		shut: func() { _ = all.Close(); hangUp(s.etcd) },
	}, nil
}
