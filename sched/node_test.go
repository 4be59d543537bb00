package sched_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// node is one process, on a machine of its own.
type node struct {
	f      *fleet
	name   string
	host   *claimtest.Host
	claims *etcdclaims.Client
	sched  *sched.Scheduler
	skew   atomic.Int64 // of its wall clock
	stop   func()
	ended  chan struct{}
	err    error // of Run, once ended is closed
}

// start starts a process that has the jobs. Its handlers tell the ledger.
func (f *fleet) start(skew time.Duration) *node {
	f.Helper()
	n := &node{f: f, name: fmt.Sprint("node", len(f.nodes)), host: f.server.Host(f.T)}
	n.skew.Store(int64(skew))
	label := n.name
	if f.label != "" {
		label = f.label
	}
	n.claims = claimtest.NewClient(f.T, n.host, etcdclaims.Config{Prefix: prefix, Owner: label, TTL: ttl, Logger: f.claimsLog})
	cfg := f.cfg
	cfg.Now = func() time.Time {
		is := time.Now().Add(time.Duration(n.skew.Load()))
		if f.onNow != nil {
			f.onNow(n)
		}
		return is
	}
	var err error
	if n.sched, err = sched.New(n.claims, cfg); err != nil {
		f.Fatal(err)
	}
	for _, j := range f.jobs {
		j.Handler = f.ledger.record(n.name, j.Handler)
		if err := n.sched.Add(j); err != nil {
			f.Fatal(err)
		}
	}
	for kind, h := range f.kinds {
		noErr(f.T, n.handle(kind, h))
	}
	n.run()
	f.nodes = append(f.nodes, n)
	f.Cleanup(func() { n.host.RemoveFaults(); n.host.Heal(); n.stop() })
	return n
}

// run takes part in the group until stop.
func (n *node) run() {
	ctx, cancel := context.WithCancel(n.f.Context())
	ended := make(chan struct{})
	n.ended, n.stop = ended, func() { cancel(); <-ended }
	go func() {
		defer close(ended)
		n.err = n.sched.Run(ctx)
	}()
}

// handle registers a function for a kind, whose runs tell the ledger.
func (n *node) handle(kind string, h kindHandler) error {
	return n.sched.Handle(kind, func(ctx context.Context, tick sched.Tick, payload json.RawMessage) error {
		return n.f.ledger.record(n.name, func(ctx context.Context, tick sched.Tick) error { return h(ctx, tick, payload) })(ctx, tick)
	})
}

// kill ends the process for etcd and for the ledger: what it does from here on
// nobody sees.
func (n *node) kill() {
	n.f.ledger.mute(n.name)
	n.host.Kill()
}

// deafens lets the watches of a process that has just been started hear nothing while the
// flag is set.
func (n *node) deafens() *atomic.Bool {
	deaf := new(atomic.Bool)
	n.host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, Edit: func(reply any) {
		if deaf.Load() {
			reply.(*pb.WatchResponse).Events = nil
		}
	}})
	return deaf
}

// slows delays each request of the process a little, and counts them.
func (n *node) slows() *claimtest.Injection {
	return n.host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayRequest: 2 * time.Millisecond})
}

// without returns a client without etcd.
func without(tb testing.TB) *etcdclaims.Client {
	tb.Helper()
	claims, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	return claims
}
