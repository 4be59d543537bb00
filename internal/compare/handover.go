package main

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/compare/load"
)

// Names of points of handOvers, for the chart.
const (
	acrossClients = "across clients"
	withinClient  = "within one client"
)

// handOvers is everybody waiting for one key, and waiting again as soon as they
// have released it.
func handOvers(o options) workload {
	w := workload{
		name: "hand-over", of: "waiters", compare: rate, rounds: o.lineRounds,
		title:   "One key handed from waiter to waiter; ratios of rates to Mutex; requests to etcd and µs of CPU for each hand-over",
		columns: []metric{rate, ratio, p50, p99, longest, requests, clientCPU, etcdCPU},
	}
	add := func(where string, n int, within bool) {
		w.points = append(w.points, point{name: fmt.Sprintf("%d waiters, %s", n, where), n: n, rows: []row{
			{name: claimsRow, open: handOverClaims(within)},
			{name: "etcd Mutex, a session each", reference: true, open: handOverMutexes(within)},
		}})
	}
	for _, n := range []int{2, 16, 64, 256} {
		add(acrossClients, n, false)
	}
	sizes := []int{2, 16, 64, 256}
	if o.quick {
		sizes = []int{2, 256}
	}
	for _, n := range sizes {
		add(withinClient, n, true)
	}
	return w
}

// handOverShape has a longer window the longer the line is: each waiter should
// get to its head.
func handOverShape(st *stage, n int) load.Shape {
	shape := st.shape(n)
	shape.Window *= time.Duration(1 + n/128)
	return shape
}

// fleet is a connection for each waiter, or one for all of them.
type fleet struct {
	wire
	etcds []*clientv3.Client
}

func newFleet(st *stage, n int) (*fleet, error) {
	f := new(fleet)
	for range n {
		etcd, err := f.dial(st, counted)
		if err != nil {
			f.close()
			return nil, err
		}
		f.etcds = append(f.etcds, etcd)
	}
	return f, nil
}

// of returns the connection of a waiter.
func (f *fleet) of(who int) *clientv3.Client { return f.etcds[who%len(f.etcds)] }

// sessions opens a session for each waiter. end ends them, and the fleet.
func (f *fleet) sessions(ctx context.Context, n int) (all []*concurrency.Session, end func(), err error) {
	end = func() {
		_ = each(16, len(all), func(i int) error { return all[i].Close() })
		f.close()
	}
	for i := range n {
		s, err := session(ctx, f.of(i))
		if err != nil {
			end()
			return nil, nil, err
		}
		all = append(all, s)
	}
	return all, end, nil
}

func (f *fleet) close() {
	for _, etcd := range f.etcds {
		hangUp(etcd)
	}
}

// handOverClaims has a client for each waiter, or one that they share. They acquire one key
// with the options.
func handOverClaims(within bool, opts ...etcdclaims.AcquireOption) func(context.Context, *stage, int) (contender, error) {
	return claimsOn(func(int) string { return "key" }, within, opts...)
}

// claimsOn is handOverClaims with the key of each waiter.
func claimsOn(key func(who int) string, within bool, opts ...etcdclaims.AcquireOption) func(context.Context, *stage, int) (contender, error) {
	return func(_ context.Context, st *stage, n int) (contender, error) {
		clients := n
		if within {
			clients = 1
		}
		f, err := newFleet(st, clients)
		if err != nil {
			return nil, err
		}
		own := prefix()
		waiters := make([]*etcdclaims.Client, clients)
		for i := range waiters {
			if waiters[i], err = etcdclaims.New(f.etcds[i], etcdclaims.Config{Prefix: own}); err != nil {
				f.close()
				return nil, err
			}
		}
		return &driven{
			shape: handOverShape(st, n), sent: f.requests, etcd: st.etcdTime(),
			step: func(ctx context.Context, who int) error {
				claim, err := waiters[who%clients].Acquire(ctx, key(who), opts...)
				if err != nil {
					return err
				}
				return claim.Release(ctx)
			},
			shut: func() {
				for _, c := range waiters {
					closeClaims(context.Background(), c)
				}
				f.close()
			},
		}, nil
	}
}

// handOverMutexes has a session for each waiter, since those of one session do
// not exclude each other; each on a connection of its own, or all on one.
func handOverMutexes(within bool) func(context.Context, *stage, int) (contender, error) {
	return func(ctx context.Context, st *stage, n int) (contender, error) {
		connections := n
		if within {
			connections = 1
		}
		return sessionsOn(ctx, st, n, connections, func(_ *clientv3.Client, s *concurrency.Session, own string) func(context.Context) error {
			mutex := concurrency.NewMutex(s, own)
			return func(ctx context.Context) error {
				if err := mutex.Lock(ctx); err != nil {
					return err
				}
				return mutex.Unlock(ctx)
			}
		})
	}
}

// sessionsOn has a session for each of n callers, on so many connections. The peer makes
// what each of them does, from its session and a prefix that all share.
func sessionsOn(ctx context.Context, st *stage, n, connections int,
	peer func(etcd *clientv3.Client, s *concurrency.Session, own string) (step func(context.Context) error),
) (contender, error) {
	f, err := newFleet(st, connections)
	if err != nil {
		return nil, err
	}
	sessions, shut, err := f.sessions(ctx, n)
	if err != nil {
		return nil, err
	}
	own := prefix()
	steps := make([]func(context.Context) error, n)
	for i, s := range sessions {
		steps[i] = peer(f.of(i), s, own)
	}
	return &driven{
		shape: handOverShape(st, n), sent: f.requests, etcd: st.etcdTime(),
		step: func(ctx context.Context, who int) error { return steps[who](ctx) },
		shut: shut,
	}, nil
}
