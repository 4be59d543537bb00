package work_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
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
