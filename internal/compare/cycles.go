package main

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"

	"github.com/etcdclaims/claims/etcdclaims"
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
	least := map[int]float64{1: 1.0, 16: 2.0, 64: 3.0, 256: 4.2, 4096: 6.5}
	sizes := []int{1, 16, 64, 256, 1024, 4096}
	if o.quick {
		sizes = []int{1, 16, 64, 256, 4096}
	}
	for _, n := range sizes {
		ours := row{name: claimsRow, open: cycleClaims}
		if v := least[n]; v > 0 {
			ours.aims = []aim{atLeast(ratio, v), lessThanReference(p99)}
		}
		rows := []row{ours, {name: mutexRow, reference: true, open: cycleMutexes}}
		if n <= 256 { // beyond, it is leases that are measured
			rows = append(rows, row{name: "etcd Mutex, a session per lock", open: cycleSessions})
		}
		w.points = append(w.points, point{name: count(n, "goroutine"), n: n, rows: append(rows,
			row{name: "etcd Lock RPC", open: cycleLocks},
			row{name: "redislock, Redis fsync always", open: cyclePeer(load.Redislock, redisDurable)},
			row{name: "redislock, Redis without persistence", open: cyclePeer(load.Redislock, redisForgetful)},
			row{name: "row lease with fence, Postgres", open: cyclePeer(load.RowLease, postgres)},
			row{name: nestedRow, open: cycleNested},
			row{name: "limit: Txns of 127 bare puts", open: cycleBare},
		)})
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
	s, err := share(st)
	if err != nil {
		return nil, err
	}
	c, err := etcdclaims.New(s.etcd, etcdclaims.Config{Prefix: prefix()})
	if err != nil {
		hangUp(s.etcd)
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
		shut: func() { closeClaims(c); hangUp(s.etcd) },
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
	s, err := share(st)
	if err != nil {
		return nil, err
	}
	all, err := session(ctx, s.etcd)
	if err != nil {
		hangUp(s.etcd)
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

// cycleSessions opens and closes a session for each lock, as is needed for locks
// that end one by one with who holds them.
func cycleSessions(_ context.Context, st *stage, n int) (contender, error) {
	s, err := share(st)
	if err != nil {
		return nil, err
	}
	keys := names(prefix(), n)
	return &driven{
		shape: st.shape(n), sent: s.requests, etcd: st.etcdTime(),
		step: func(ctx context.Context, who int) error {
			own, err := session(ctx, s.etcd)
			if err != nil {
				return err
			}
			m := concurrency.NewMutex(own, keys[who])
			if err := m.Lock(ctx); err != nil {
				return err
			}
			if err := m.Unlock(ctx); err != nil {
				return err
			}
			return own.Close()
		},
		shut: func() { hangUp(s.etcd) },
	}, nil
}

// cycleLocks lets the server do what Mutex does: each call costs one request, and
// the server sends itself the rest.
func cycleLocks(ctx context.Context, st *stage, n int) (contender, error) {
	s, err := share(st)
	if err != nil {
		return nil, err
	}
	all, err := session(ctx, s.etcd)
	if err != nil {
		hangUp(s.etcd)
		return nil, err
	}
	locks, lease, keys := v3lockpb.NewLockClient(s.etcd.ActiveConnection()), int64(all.Lease()), names(prefix(), n)
	return &driven{
		shape: st.shape(n), sent: s.requests, etcd: st.etcdTime(),
		step: func(ctx context.Context, who int) error {
			lock, err := locks.Lock(ctx, &v3lockpb.LockRequest{Name: []byte(keys[who]), Lease: lease})
			if err != nil {
				return err
			}
			_, err = locks.Unlock(ctx, &v3lockpb.UnlockRequest{Key: lock.Key})
			return err
		},
		shut: func() { _ = all.Close(); hangUp(s.etcd) },
	}, nil
}
