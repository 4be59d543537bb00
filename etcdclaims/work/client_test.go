package work_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

// client is a client and the runner of its work.
type client struct {
	*etcdclaims.Client
	*work.Runner
}

// config is that of both.
type config struct {
	Prefix, Owner string
	TTL, Drain    time.Duration
	AllowShortTTL bool
	Logger        *zap.Logger
	Hooks         etcdclaims.Hooks

	MaxAttempts              int
	Backoff                  etcdclaims.Backoff
	Retention, DeadRetention time.Duration
}

func (cfg config) ofClaims() etcdclaims.Config {
	return etcdclaims.Config{
		Prefix: cfg.Prefix, Owner: cfg.Owner, TTL: cfg.TTL, Drain: cfg.Drain, AllowShortTTL: cfg.AllowShortTTL, Logger: cfg.Logger, Hooks: cfg.Hooks,
	}
}

func (cfg config) ofWork() work.Config {
	return work.Config{MaxAttempts: cfg.MaxAttempts, Backoff: cfg.Backoff, Retention: cfg.Retention, DeadRetention: cfg.DeadRetention}
}

// stats are those of both.
type stats struct {
	etcdclaims.Stats
	TookOver, Completed, Failed int64
}

func (c *client) Stats() stats {
	s := stats{Stats: c.Client.Stats()}
	of := c.Runner.Stats()
	s.TookOver, s.Completed, s.Failed = of.TookOver, of.Completed, of.Failed
	s.Waiting += of.Waiting
	return s
}

// newClient returns a client on an etcd client, nil for none, closed at the test's end. Clients that
// shall share claims are given one prefix.
func newClient(tb testing.TB, etcd *clientv3.Client, cfg config) *client {
	tb.Helper()
	make := etcdclaims.New
	if etcd == nil {
		make = func(_ *clientv3.Client, cfg etcdclaims.Config) (*etcdclaims.Client, error) {
			return etcdclaims.NewPassthrough(cfg)
		}
	}
	claims, err := make(etcd, cfg.ofClaims())
	noErr(tb, err)
	r, err := work.New(claims, cfg.ofWork())
	noErr(tb, err)
	limit := 5 * time.Second
	if time.Now().Year() > 2020 { // in real time, on a machine that may be busy
		limit = time.Minute
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := claims.Close(ctx); err != nil {
			tb.Errorf("closing: %v", err)
		}
	})
	return &client{claims, r}
}

// What tests of other packages need, too.
var (
	noErr      = testclaims.NoErr
	wantIs     = testclaims.WantIs
	eventually = testclaims.Eventually
	rawKV      = testclaims.RawKV
	failing    = testwork.Fail
	recordOf   = testclaims.RecordOf
	release    = testclaims.Release
	lossOf     = testclaims.LossOf
	atOnce     = testclaims.AtOnce
)

func tryClaim(tb testing.TB, c *client, key string, opts ...etcdclaims.AcquireOption) *etcdclaims.Claim {
	tb.Helper()
	return testclaims.TryClaim(tb, c.Client, key, opts...)
}

func tryBegin(tb testing.TB, c *client, key string, opts ...work.Option) *work.Work {
	tb.Helper()
	w, err := c.TryBegin(tb.Context(), key, opts...)
	noErr(tb, err)
	return w
}

// orphansOf returns up to limit orphans, 0 for all.
func orphansOf(ctx context.Context, c *client, limit int) ([]work.Record, error) {
	return testwork.Orphans(ctx, c.Runner, limit)
}

func lookUp(tb testing.TB, c *client, key string) etcdclaims.Info {
	tb.Helper()
	return testclaims.LookUp(tb, c.Client, key)
}

// vanish ends the lease of a key's holder, as its death would in time.
func vanish(tb testing.TB, etcd *clientv3.Client, c *client, key string) {
	tb.Helper()
	testclaims.Vanish(tb, etcd, c.Client, key)
}

// twoOwners returns two claims clients with owners a and b on one prefix.
func twoOwners(tb testing.TB, etcd *clientv3.Client, cfg config) (a, b *client, prefix string) {
	tb.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = testetcd.Prefix(tb)
	}
	cfg.Owner = "a"
	a = newClient(tb, etcd, cfg)
	cfg.Owner = "b"
	return a, newClient(tb, etcd, cfg), cfg.Prefix
}
