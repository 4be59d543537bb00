package work_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/mvccpb"
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

// noErr ends the test on an error.
func noErr(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// wantIs ends the test on an error that does not match.
func wantIs(tb testing.TB, err, target error) {
	tb.Helper()
	if !errors.Is(err, target) {
		tb.Fatalf("got %v, want an error that matches %q", err, target)
	}
}

func tryClaim(tb testing.TB, c *client, key string, opts ...etcdclaims.AcquireOption) *etcdclaims.Claim {
	tb.Helper()
	cl, err := c.TryAcquire(tb.Context(), key, opts...)
	if err != nil {
		tb.Fatalf("acquiring %s: %v", key, err)
	}
	return cl
}

func tryBegin(tb testing.TB, c *client, key string, opts ...work.Option) *work.Work {
	tb.Helper()
	w, err := c.TryBegin(tb.Context(), key, opts...)
	noErr(tb, err)
	return w
}

// failing fails work whose outcome does not matter.
func failing(ctx context.Context, w *work.Work, cause error, ops ...clientv3.Op) error {
	_, err := w.Fail(ctx, cause, ops...)
	return err
}

// orphansOf returns up to limit orphans, 0 for all.
func orphansOf(ctx context.Context, c *client, limit int) ([]work.Record, error) {
	var out []work.Record
	for r, err := range c.Orphans(ctx, "") {
		if err != nil {
			return nil, err
		}
		if out = append(out, r); len(out) == limit {
			break
		}
	}
	return out, nil
}

// recordOf returns the record in an error of TryBegin that matches target.
func recordOf(tb testing.TB, err, target error) work.Record {
	tb.Helper()
	wantIs(tb, err, target)
	var we *work.Error
	if !errors.As(err, &we) {
		tb.Fatalf("%v carries no record", err)
	}
	return we.Record
}

func lookUp(tb testing.TB, c *client, key string) etcdclaims.Info {
	tb.Helper()
	i, err := c.Lookup(tb.Context(), key)
	noErr(tb, err)
	return i
}

// eventually waits until ok says so.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("waited in vain: %s", what)
		}
	}
}

// rawKV reads a key as an operator would, nil if it is not there.
func rawKV(tb testing.TB, etcd *clientv3.Client, key string) *mvccpb.KeyValue {
	tb.Helper()
	resp, err := etcd.Get(tb.Context(), key)
	noErr(tb, err)
	if len(resp.Kvs) == 0 {
		return nil
	}
	return resp.Kvs[0]
}

// vanish ends the lease of a key's holder, as its death would in time.
func vanish(tb testing.TB, etcd *clientv3.Client, c *client, key string) {
	tb.Helper()
	i := lookUp(tb, c, key)
	if i.Lease == 0 {
		tb.Fatalf("key %q has no lease: %+v", key, i)
	}
	_, err := etcd.Revoke(tb.Context(), i.Lease)
	noErr(tb, err)
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
