package term_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/life"
	"github.com/etcdclaims/claims/internal/outage"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/store"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	"go.uber.org/zap"
)

// slowlyClosed is the context of a client that is closed while the process stands still: who asks
// waits for a while.
type slowlyClosed struct {
	context.Context
	while time.Duration
}

func (c slowlyClosed) Err() error {
	time.Sleep(c.while)
	return context.Canceled
}

// nothing observes nothing, and has no callers that wait.
type nothing struct {
	term.Observer
	term.Waiters
}

func (nothing) Share(func(string) bool) {}

func (nothing) TermLost(*term.Term, claimerr.Loss) {}

// terms returns the terms of a client without claims, and a session with a reserved place.
func terms(t *testing.T) (*term.Terms, *lease.Session) {
	t.Helper()
	etcd, log, l := claimtest.Start(t).Etcd(t), zap.NewNop(), life.New()
	t.Cleanup(l.End)
	o := outage.New(outage.Config{Etcd: etcd, Log: log, Patience: time.Hour, Passing: claimerr.IsPassing})
	st := store.New(store.Config{
		IO: l.IO, Etcd: etcd, Log: log, Layout: protocol.Layout{Prefix: "claims/", Instance: "one"}, Timeout: 5 * time.Second,
		Ops: 128, Bytes: 1 << 20, OnRewind: func(error) {}, Requested: func(string, time.Time, error) {},
		Observe: func(context.Context, time.Time, error) {}, ObserveOther: func(context.Context, time.Time, error) {},
	})
	pool := lease.NewPool(lease.Config{
		Etcd: etcd, Store: st, Log: log, Life: l, Outage: o, Began: func(int64) {},
		Timing: func(ttl time.Duration) lease.Timing { return lease.NewTiming(ttl, time.Second) },
	})
	s, err := pool.Session(t.Context(), time.Minute, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Die(claimerr.Loss{Reason: claimerr.Shutdown}) })
	return term.New(term.Config{
		Store: st, Pool: pool, Life: l, Outage: o, Log: log, Observer: nothing{}, Waiters: nothing{},
		Uptime: func() time.Duration { return 0 }, Bound: 5 * time.Second,
	}), s
}

// A claim that its client refuses, because it is being closed, has no MaxHold: its key would be
// put on another lease, and a loss be reported of a claim that no caller had. The process
// stands still for longer than the MaxHold before it refuses. That takes real time, since locks
// stop a bubble's.
func TestMaxHoldOfAClaimThatIsRefused(t *testing.T) {
	const while = 20 * time.Millisecond
	ts, s := terms(t)
	ts.Life.Open = slowlyClosed{t.Context(), while}
	try := &protocol.Try{
		Layout: ts.Store.Layout, Mode: protocol.Exclusive{Layout: ts.Store.Layout, Key: "k"}, ID: "a", Value: "v",
		Lease: int64(s.ID()), Epoch: &txn.Epoch{},
	}
	if ts.Add(term.Grant{Given: term.Given{MaxHold: time.Nanosecond}, Try: try, Rev: 10, Session: s}) != nil {
		t.Fatal("a client that is closed has a new claim")
	}
	time.Sleep(while)
	if n := ts.Losses[claimerr.MaxHold].Load(); n != 0 {
		t.Errorf("%d claims were lost by their MaxHold; want 0, as there was none", n)
	}
}
