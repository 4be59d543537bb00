package main

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/compare/load"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// driven is a contender that repeats a step under load, and of which it is known
// what that costs.
type driven struct {
	shape load.Shape
	each  int          // what is counted of one step, if that is not 1
	sent  func() int64 // requests so far
	etcd  func() int64 // CPU time of etcd, in ns
	step  func(ctx context.Context, who int) error
	shut  func()
}

func (d *driven) measure(ctx context.Context) (sample, error) {
	ours := func() int64 { return int64(cpuTime()) }
	r, err := load.Run(ctx, d.shape, []func() int64{d.sent, ours, d.etcd}, d.step)
	if err != nil {
		return nil, err
	}
	s, each := of(r), float64(max(d.each, 1))
	s[rate] *= each
	s[requests] = r.Counted[0] / each
	for i, m := range []metric{clientCPU, etcdCPU} {
		if ns := r.Counted[1+i]; ns > 0 { // it is not known on every system
			s[m] = ns / 1000 / each
		}
	}
	return s, nil
}

func (d *driven) close() { d.shut() }

// closing is how long ends are waited for: with an etcd that answers, and with
// nothing to lose if it does not.
const closing = 10 * time.Second

func closeClaims(ctx context.Context, c *etcdclaims.Client) {
	ctx, cancel := context.WithTimeout(ctx, closing)
	defer cancel()
	_ = c.Close(ctx) // what it leaves in etcd is gone with that
}

// shared is a connection to etcd that counts requests.
type shared struct {
	wire
	etcd *clientv3.Client
}

func share(st *stage) (*shared, error) {
	s := new(shared)
	var err error
	s.etcd, err = s.dial(st, counted)
	return s, err
}

// shareClaims returns a connection with a client of claims.
func shareClaims(st *stage) (*shared, *etcdclaims.Client, error) {
	s, err := share(st)
	if err != nil {
		return nil, nil, err
	}
	c, err := etcdclaims.New(s.etcd, etcdclaims.Config{Prefix: prefix()})
	if err != nil {
		hangUp(s.etcd)
	}
	return s, c, err
}

// shareSession returns a connection with a session for Mutexes.
func shareSession(ctx context.Context, st *stage) (*shared, *concurrency.Session, error) {
	s, err := share(st)
	if err != nil {
		return nil, nil, err
	}
	all, err := session(ctx, s.etcd)
	if err != nil {
		hangUp(s.etcd)
	}
	return s, all, err
}

// session opens one for Mutexes. Its lease lasts as long as those of claims do.
func session(ctx context.Context, etcd *clientv3.Client) (*concurrency.Session, error) {
	// Not the context of the measurement: a session ends with its own.
	lease, err := etcd.Grant(ctx, int64(etcdclaims.DefaultTTL/time.Second))
	if err != nil {
		return nil, err
	}
	return concurrency.NewSession(etcd, concurrency.WithLease(lease.ID), concurrency.WithTTL(int(etcdclaims.DefaultTTL/time.Second)))
}
