package scenarios_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// Claims mean the same on every version of etcd that is supported.
func TestReleases(t *testing.T) {
	testetcd.SkipUnlessLong(t, "builds and starts servers of other versions")
	for _, r := range releases {
		t.Run(r.line+"x", func(t *testing.T) {
			t.Parallel()
			p := r.start(t)
			etcd := p.Client(t)
			t.Run("Variant", func(t *testing.T) {
				testetcd.SkipUnlessLong(t, "waits for leases of five seconds")
				inRealTime(t, func(testing.TB) (*clientv3.Client, *claimtest.Host) { return etcd, nil })
			})
			t.Run("Warning", func(t *testing.T) { warning(t, etcd, r.warns) })
			t.Run("Revoked", func(t *testing.T) { revoked(t, etcd) })
			t.Run("Dead", func(t *testing.T) { dead(t, p) })
			t.Run("Restarted", func(t *testing.T) { restarted(t, p, etcd) })
			t.Run("Paused", func(t *testing.T) {
				testetcd.SkipUnlessLong(t, "pauses the server for seconds")
				paused(t, p, etcd)
			})
		})
	}
}

// open returns a client that is closed when the test ends.
func open(tb testing.TB, etcd *clientv3.Client, cfg etcdclaims.Config) *etcdclaims.Client {
	tb.Helper()
	c, err := etcdclaims.New(etcd, cfg)
	noErr(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			tb.Errorf("closing: %v", err)
		}
	})
	return c
}

// warning checks that a server that lacks a fix is warned of, once, and that no
// other is.
func warning(t *testing.T, etcd *clientv3.Client, wanted bool) {
	logger, logs := observer.New(zapcore.DebugLevel)
	c := open(t, etcd, etcdclaims.Config{Prefix: testetcd.Prefix(t), Logger: zap.New(logger)})
	try(t, c, "k")
	try(t, c, "manual", etcdclaims.Manual())
	told := func() int { return logs.FilterMessageSnippet("lacks a fix").Len() }
	if wanted {
		eventually(t, "the warning", func() bool { return told() > 0 })
	}
	time.Sleep(200 * time.Millisecond)
	if n := told(); n > 1 || n > 0 != wanted {
		t.Errorf("%d warnings, want one: %v; logged: %v", n, wanted, logs.AllUntimed())
	}
	if n := logs.FilterMessageSnippet("version").Len(); n > 0 {
		t.Errorf("the version was not told: %v", logs.AllUntimed())
	}
}

// revoked takes a lease away under its claims.
func revoked(t *testing.T, etcd *clientv3.Client) {
	ctx, cfg := t.Context(), etcdclaims.Config{Prefix: testetcd.Prefix(t)}
	a, b := open(t, etcd, cfg), open(t, etcd, cfg)
	cl, w := try(t, a, "k"), begin(t, a, "work")
	i, err := b.Lookup(ctx, "k")
	noErr(t, err)
	start := time.Now()
	_, err = etcd.Revoke(ctx, i.Lease)
	noErr(t, err)
	within(t, 30*time.Second, cl.Done(), w.Done())
	t.Logf("lost %v after the revocation began", time.Since(start))
	lost(t, cl, etcdclaims.ReasonRevoked)
	wantIs(t, cl.Check(), etcdclaims.ErrLost)
	if cl.Context().Err() == nil {
		t.Error("the context of a lost claim goes on")
	}

	var orphans []work.Record
	for r, err := range testwork.Of(b).Orphans(ctx, "") {
		noErr(t, err)
		orphans = append(orphans, r)
	}
	if len(orphans) != 1 || orphans[0].Key != "work" {
		t.Errorf("orphans %+v", orphans)
	}
	next := try(t, b, "k")
	if next.Fence() <= cl.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), cl.Fence())
	}
	again := begin(t, b, "work")
	if r, ok := again.Previous(); !ok || r.Claim != w.ID() || again.Attempt() != 2 {
		t.Errorf("attempt %d after %+v, %v", again.Attempt(), r, ok)
	}
	wantIs(t, w.Complete(ctx), etcdclaims.ErrLost)
	noErr(t, again.Complete(ctx))
	noErr(t, next.Check())
}

// dead lets a holder vanish without a word.
func dead(t *testing.T, p *testetcd.Process) {
	const ttl = etcdclaims.MinTTL
	cfg := etcdclaims.Config{Prefix: testetcd.Prefix(t), TTL: ttl}
	theirs := p.Client(t)
	a, err := etcdclaims.New(theirs, cfg)
	noErr(t, err)
	b := open(t, p.Client(t), cfg)
	cl := try(t, a, "k")
	noErr(t, theirs.Close())
	start := time.Now()
	next, err := b.Acquire(t.Context(), "k")
	noErr(t, err)
	took := time.Since(start)
	t.Logf("picked up after %v", took)
	if took > ttl+15*time.Second || next.Fence() <= cl.Fence() {
		t.Errorf("picked up after %v, fence %d after %d", took, next.Fence(), cl.Fence())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_ = a.Close(ctx) // it cannot tell anybody
	wantIs(t, cl.Check(), etcdclaims.ErrLost)
	noErr(t, next.Check())
}

// restarted kills the server and starts it with its data.
func restarted(t *testing.T, p *testetcd.Process, etcd *clientv3.Client) {
	ctx, cfg := t.Context(), etcdclaims.Config{Prefix: testetcd.Prefix(t)}
	a, b := open(t, etcd, cfg), open(t, etcd, cfg)
	cl := try(t, a, "k")
	p.Restart(t)
	noErr(t, cl.Renew(ctx))
	noErr(t, cl.Check())
	_, err := b.TryAcquire(ctx, "k")
	wantIs(t, err, etcdclaims.ErrHeld)
	noErr(t, cl.Release(ctx))
	if next := try(t, b, "k"); next.Fence() <= cl.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), cl.Fence())
	}
}

// paused stops the server for longer than a claim lasts.
func paused(t *testing.T, p *testetcd.Process, etcd *clientv3.Client) {
	ctx, cfg := t.Context(), etcdclaims.Config{Prefix: testetcd.Prefix(t), TTL: etcdclaims.MinTTL}
	a, b := open(t, etcd, cfg), open(t, etcd, cfg)
	cl := try(t, a, "k")
	p.Pause(t)
	within(t, 30*time.Second, cl.Done()) // with no message from anyone
	lost(t, cl, etcdclaims.ReasonExpired)
	p.Resume(t)
	next, err := b.Acquire(ctx, "k")
	noErr(t, err)
	if next.Fence() <= cl.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), cl.Fence())
	}
	_, err = cl.Txn(ctx).Then(clientv3.OpPut("/effects"+cfg.Prefix, "late")).Commit()
	wantIs(t, err, etcdclaims.ErrLost)
}

func wantIs(tb testing.TB, err, target error) {
	tb.Helper()
	if !errors.Is(err, target) {
		tb.Fatalf("got %v, want an error that matches %q", err, target)
	}
}

func try(tb testing.TB, c *etcdclaims.Client, key string, opts ...etcdclaims.AcquireOption) *etcdclaims.Claim {
	tb.Helper()
	cl, err := c.TryAcquire(tb.Context(), key, opts...)
	noErr(tb, err)
	return cl
}

func begin(tb testing.TB, c *etcdclaims.Client, key string, opts ...work.Option) *work.Work {
	tb.Helper()
	w, err := testwork.Of(c).TryBegin(tb.Context(), key, opts...)
	noErr(tb, err)
	return w
}

// lost checks why a claim ended.
func lost(tb testing.TB, cl *etcdclaims.Claim, want etcdclaims.Reason) {
	tb.Helper()
	err := cl.Err()
	if l, ok := errors.AsType[*etcdclaims.LostError](err); !ok || l.Reason != want {
		tb.Errorf("lost by %v, want %v", err, want)
	}
}

func within(tb testing.TB, d time.Duration, ends ...<-chan struct{}) {
	tb.Helper()
	timeout := time.After(d)
	for i, end := range ends {
		select {
		case <-end:
		case <-timeout:
			tb.Fatalf("number %d goes on after %v", i, d)
		}
	}
}

func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("waited in vain: %s", what)
		}
	}
}
