package main

import (
	"context"
	"fmt"

	"github.com/bsm/redislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"

	"github.com/etcdclaims/claims/etcdclaims"
)

// Names of rows that several workloads have.
const (
	claimsRow   = "etcdclaims"
	lazyRow     = "etcdclaims, LazyRelease"
	mutexRow    = "etcd Mutex, a shared session"
	sessionsRow = "etcd Mutex, a session each"
)

// A layout is how callers that acquire and release share keys, connections and sessions.
// They share nothing unless it says so.
type layout struct{ key, client, session bool }

// key returns the key of a caller.
func (l layout) keyOf(who int) string {
	if l.key {
		return "key"
	}
	return fmt.Sprintf("key/%d", who)
}

// open connects n callers.
func (l layout) open(st *stage, n int) (*fleet, *driven, error) {
	d := &driven{shape: st.shape(n)}
	if l.key {
		d.shape = st.lineShape(n)
	}
	if l.client {
		n = 1
	}
	f, err := newFleet(st, n)
	if err == nil {
		d.sent, d.shut = f.sent.Load, f.close
	}
	return f, d, err
}

// claims acquires with the options, without waiting if nobody is in the way.
func (l layout) claims(opts ...etcdclaims.AcquireOption) measurer {
	return drive(func(_ context.Context, st *stage, n int) (*driven, error) {
		f, d, err := l.open(st, n)
		if err != nil {
			return nil, err
		}
		clients, own := make([]*etcdclaims.Client, len(f.etcds)), prefix()
		for i := range clients {
			if clients[i], err = etcdclaims.New(f.etcds[i], etcdclaims.Config{Prefix: own}); err != nil {
				f.close()
				return nil, err
			}
		}
		d.step = func(ctx context.Context, who int) error {
			c := clients[who%len(clients)]
			acquire := c.TryAcquire
			if l.key {
				acquire = c.Acquire
			}
			claim, err := acquire(ctx, l.keyOf(who), opts...)
			if err != nil {
				return err
			}
			return claim.Release(ctx)
		}
		d.shut = func() {
			_ = each(16, len(clients), func(i int) error { closeClaims(clients[i]); return nil })
			f.close()
		}
		return d, nil
	})
}

// sessions has etcd's recipe made for each caller, from a session and a prefix.
func (l layout) sessions(peer func(etcd *clientv3.Client, s *concurrency.Session, at string) cycle) measurer {
	return drive(func(ctx context.Context, st *stage, n int) (*driven, error) {
		f, d, err := l.open(st, n)
		if err != nil {
			return nil, err
		}
		count := n
		if l.session {
			count = 1
		}
		sessions, shut, err := f.sessions(count)
		if err != nil {
			return nil, err
		}
		own, cycles := prefix(), make([]cycle, n)
		for i := range cycles {
			cycles[i] = peer(f.of(i), sessions[i%count], own+l.keyOf(i))
		}
		d.step, d.shut = func(ctx context.Context, who int) error { return cycles[who](ctx) }, shut
		return d, nil
	})
}

// A cycle acquires something and releases it.
type cycle func(ctx context.Context) error

func mutex(_ *clientv3.Client, s *concurrency.Session, at string) cycle {
	return func(ctx context.Context) error {
		m := concurrency.NewMutex(s, at)
		if err := m.Lock(ctx); err != nil {
			return err
		}
		return m.Unlock(ctx)
	}
}

func reader(_ *clientv3.Client, s *concurrency.Session, at string) cycle {
	m := recipe.NewRWMutex(s, at)
	return func(context.Context) error { // its calls take no context
		if err := m.RLock(); err != nil {
			return err
		}
		return m.RUnlock()
	}
}

// cycles is acquire and release, with nobody in the way.
func cycles() workload {
	w := workload{
		name: "cycles", compare: rate,
		title: "Acquire and release, each goroutine on a key of its own; ratios of rates to Mutex; requests to etcd for each cycle",
	}
	all := layout{client: true, session: true}
	for _, n := range []int{1, 16, 64, 256, 4096} {
		w.points = append(w.points, point{name: fmt.Sprint(n, " goroutines"), n: n, rows: []row{
			{name: claimsRow, measure: all.claims()},
			{name: lazyRow, measure: all.claims(etcdclaims.LazyRelease())},
			{name: mutexRow, reference: true, measure: all.sessions(mutex)},
			{name: "redislock, Redis fsync always", measure: redisLocks(redisDurable)},
			{name: "redislock, Redis without persistence", measure: redisLocks(redisForgetful)},
		}})
	}
	return w
}

// redisLocks has one client for all goroutines.
func redisLocks(of kind) measurer {
	return drive(func(ctx context.Context, st *stage, n int) (*driven, error) {
		s, err := st.server(ctx, of)
		if err != nil {
			return nil, err
		}
		r := redisClient(s.address)
		locks := redislock.New(r)
		return &driven{
			shape: st.shape(n), sent: none,
			step: func(ctx context.Context, who int) error {
				lock, err := locks.Obtain(ctx, layout{}.keyOf(who), etcdclaims.DefaultTTL, nil)
				if err != nil {
					return err
				}
				return lock.Release(ctx)
			},
			shut: func() { _ = r.Close() },
		}, nil
	})
}

// spread is cycles with a client for each goroutine: each client has round trips of its own.
func spread() workload {
	return workload{
		name: "spread", compare: rate,
		title: "Acquire and release by goroutines with a client each; ratios of rates to Mutex",
		points: []point{{name: "256 clients", n: 256, rows: []row{
			{name: claimsRow, measure: layout{}.claims()},
			{name: lazyRow, measure: layout{}.claims(etcdclaims.LazyRelease())},
			{name: sessionsRow, reference: true, measure: layout{}.sessions(mutex)},
		}}},
	}
}

// handOvers is everybody waiting for one key, and waiting again as soon as they have
// released it. Each Mutex has a session: those of one session do not exclude each other.
func handOvers() workload {
	w := workload{
		name: "hand-over", compare: rate,
		title: "One key handed from waiter to waiter; ratios of rates to Mutex; requests to etcd for each hand-over",
	}
	add := func(n int, where string, l layout) {
		w.points = append(w.points, point{name: fmt.Sprintf("%d waiters, %s", n, where), n: n, rows: []row{
			{name: claimsRow, measure: l.claims()},
			{name: sessionsRow, reference: true, measure: l.sessions(mutex)},
		}})
	}
	for _, n := range []int{2, 16, 256} {
		add(n, "across clients", layout{key: true})
	}
	for _, n := range []int{2, 256} {
		add(n, "within one client", layout{key: true, client: true})
	}
	return w
}

// keySlots is how many may hold the one key of slots.
const keySlots = 16

// slots is everybody waiting for one of the slots of one key. Claims guarantee that the
// slot's fence rises and that the line is first in, first out.
func slots() workload {
	w := workload{name: "slots", title: fmt.Sprintf("One key with %d slots, a client for each caller", keySlots)}
	for _, n := range []int{keySlots, 64} {
		w.points = append(w.points, point{name: fmt.Sprint(n, " callers"), n: n, rows: []row{
			{name: "etcdclaims, Slots", measure: layout{key: true}.claims(etcdclaims.Slots(keySlots))},
		}})
	}
	return w
}

// readers is everybody sharing one key. Nobody waits. Claims guarantee that each reader has
// a fence between those of the writers before and after, and that writers and readers wait
// in one line; the recipe of etcd that no writer holds the key.
func readers() workload {
	w := workload{
		name: "readers", compare: rate,
		title: "One key shared by readers, a client for each; ratios of rates to etcd's RWMutex",
	}
	for _, n := range []int{16, 64} {
		w.points = append(w.points, point{name: fmt.Sprint(n, " readers"), n: n, rows: []row{
			{name: "etcdclaims, Shared", measure: layout{key: true}.claims(etcdclaims.Shared())},
			{name: "etcd RWMutex, a session each", reference: true, measure: layout{key: true}.sessions(reader)},
		}})
	}
	return w
}
