// Package testlayers has what the tests of a client's layers have in common: an etcd in memory, and what every layer is
// built on. It imports no layer, so that all of them can use it. Package testterms adds sessions and terms.
package testlayers

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/life"
	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/outage"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/store"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Layout is where the client of the tests keeps its keys.
var Layout = protocol.Layout{Prefix: "/p/", Instance: "me"}

// Parts are what the layers of a client are built on, in virtual time.
type Parts struct {
	Journal
	Answers

	Etcd   *memetcd.Etcd
	Client *clientv3.Client
	Log    *zap.Logger
	Life   *life.Life
	Store  *store.Store
	Outage *outage.Outage
	Clock  clock.Clock
	// Slept is for how long the machine has slept, and Stepped by how much its wall clock was set, in nanoseconds.
	Slept, Stepped atomic.Int64

	made time.Time
}

// New returns the parts of a client.
func New(log *zap.Logger) *Parts {
	p := &Parts{Etcd: memetcd.NewEtcd(), Life: life.New(), Log: log, made: time.Now()}
	p.Client = p.Etcd.Client()
	p.Clock = clock.Clock{
		Boot: func() time.Duration { return p.Uptime() + time.Duration(p.Slept.Load()) },
		Wall: func() time.Time { return time.Now().Add(time.Duration(p.Slept.Load() + p.Stepped.Load())) },
	}
	ignore := func(context.Context, time.Time, error) {}
	p.Store = store.New(store.Config{
		IO: p.Life.IO, Etcd: p.Client, Log: log, Layout: Layout, Timeout: time.Second, Ops: 128, Bytes: 1 << 20,
		Observe: ignore, ObserveOther: ignore, Requested: func(string, time.Time, error) {}, OnRewind: func(error) {},
	})
	p.Outage = outage.New(outage.Config{
		Etcd: p.Client, Log: log, Patience: time.Hour, Unanswered: func() {}, Passing: claimerr.IsPassing,
		Go: func(func(context.Context)) bool { return false },
	})
	return p
}

// Uptime is how long ago the client was made.
func (p *Parts) Uptime() time.Duration { return time.Since(p.made) }

// End ends the client. Its sessions have ended.
func (p *Parts) End() {
	p.Life.BeginEnd()
	p.Life.Refuse()
	p.Life.End()
}

// Put puts a key in etcd, and returns the revision.
func (p *Parts) Put(name, value string, lease int64) (rev int64) {
	p.Etcd.With(func(m *memetcd.Model) { rev = m.Put(name, value, lease) })
	return rev
}

// Remove removes a key from etcd.
func (p *Parts) Remove(name string) {
	p.Etcd.With(func(m *memetcd.Model) { m.Remove(name) })
}

// Owner returns the holder of a key in etcd. It is zero if the key is free.
func (p *Parts) Owner(key string) (h protocol.Holder) {
	p.Etcd.With(func(m *memetcd.Model) {
		if kv := m.KV(Layout.Own(key)); kv != nil {
			h, _ = protocol.DecodeHolder(kv.Value)
		}
	})
	return h
}

// In runs a test in virtual time, on a world that is ended after it.
func In[W interface{ End() }](t *testing.T, world func() W, test func(t *testing.T, w W)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := world()
		defer w.End()
		test(t, w)
	})
}

// Pass lets time pass, and waits for what is due by then.
func Pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
