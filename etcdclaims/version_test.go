package etcdclaims_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
)

// says makes the server tell a version that is not its own.
func says(host *claimtest.Host, version string) *claimtest.Injection {
	return host.Inject(claimtest.Fault{On: steps.Status, Times: -1, Edit: func(reply any) { reply.(*pb.StatusResponse).Version = version }})
}

// Which versions are warned of, and of what.
func TestVersions(t *testing.T) {
	t.Parallel()
	const (
		stale    = "etcd-io/etcd#20418"
		overRead = "GHSA-xg4h-6gfc-h4m8"
		old      = "before 3.5"
	)
	tests := map[string]struct {
		faults  []string // what the warning speaks of; none: no warning
		fixedIn string
	}{
		"2.3.8":  {[]string{old}, "3.5.28"},
		"3.3.27": {[]string{old}, "3.5.28"},
		"3.4.0":  {[]string{old, stale}, "3.5.28"},
		"3.4.23": {[]string{old, stale}, "3.5.28"},
		"3.4.41": {[]string{old, stale}, "3.5.28"},
		"3.4.42": {[]string{old}, "3.5.28"},

		"3.5.0":         {[]string{stale}, "3.5.28"},
		"3.5.0-rc.1":    {[]string{stale}, "3.5.28"},
		"3.5.9":         {[]string{stale}, "3.5.28"}, // as a text it would come after 3.5.28
		"3.5.27":        {[]string{stale}, "3.5.28"},
		"3.5.27+vendor": {[]string{stale}, "3.5.28"},
		"3.5.28":        {},
		"3.5.28-vendor": {}, // not a candidate for 3.5.28
		"3.5.35":        {},

		"3.6.0-alpha.0": {[]string{stale}, "3.6.9"},
		"3.6.8":         {[]string{stale}, "3.6.9"},
		"3.6.9":         {},
		"3.6.10":        {},
		"3.6.16":        {},

		"3.7.0-rc.0": {[]string{overRead}, "3.7.1"},
		"3.7.0":      {[]string{overRead}, "3.7.1"},
		"3.7.1":      {},
		"3.7.3":      {},

		"3.8.0-alpha.0": {},
		"3.10.0":        {},
		"4.0.0":         {},
		"4.5.1":         {},

		// What cannot be read is no reason to alarm anybody.
		"":               {},
		"3.4":            {},
		"v3.4.23":        {},
		"unknown":        {},
		"3.4.23.1":       {},
		"3.-4.1":         {},
		"not provided!!": {},
	}
	virtually(t, func(t *testing.T, w *world) {
		for told, want := range tests {
			logger, logs := observer.New(zapcore.WarnLevel)
			c, host := w.client(etcdclaims.Config{Logger: zap.New(logger)})
			said := says(host, told)
			tryClaim(w.T, c, "k/"+told)
			time.Sleep(sec)
			if n := said.Hits(); n != 1 {
				t.Errorf("%q: asked %d times", told, n)
			}
			entries := logs.AllUntimed()
			if len(want.faults) == 0 {
				if len(entries) > 0 {
					t.Errorf("%q: %v", told, entries)
				}
				continue
			}
			if len(entries) != 1 {
				t.Errorf("%q: %d warnings: %v", told, len(entries), entries)
				continue
			}
			fields := entries[0].ContextMap()
			if !strings.Contains(entries[0].Message, "upgrade") || fields["version"] != told || fields["fixedIn"] != want.fixedIn {
				t.Errorf("%q: %s %v, want fixedIn %s", told, entries[0].Message, fields, want.fixedIn)
			}
			fault, _ := fields["fault"].(string)
			for _, part := range []string{stale, overRead, old} {
				expected := false
				for _, w := range want.faults {
					expected = expected || w == part
				}
				if strings.Contains(fault, part) != expected {
					t.Errorf("%q: warned of %q; that it speaks of %s should be %v", told, fault, part, expected)
				}
			}
		}
	})
}

// The version is asked for once in the life of a client, and that is not one of
// the requests that it counts.
func TestVersionIsAskedForOnce(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		logger, logs := observer.New(zapcore.WarnLevel)
		c, host := w.client(etcdclaims.Config{Logger: zap.New(logger), TTL: 15 * sec})
		says(host, "3.4.23")
		if _, err := c.Lookup(context.Background(), "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(sec)
		if n := len(host.Sent(steps.Status)); n != 0 {
			t.Errorf("asked %d times by a client without a session", n)
		}
		before := c.Stats().Requests
		tryClaim(t, c, "k")
		time.Sleep(sec)
		if n := c.Stats().Requests - before; n != 3 { // lease, sentinel, claim
			t.Errorf("the first claim took %d requests", n)
		}
		tryClaim(t, c, "longer", etcdclaims.TTL(time.Minute))
		tryClaim(t, c, "manual", etcdclaims.Manual())
		// The lease goes, and with it the session: the next is not the first.
		w.Server.Revoke(t, w.Own("k"))
		time.Sleep(sec)
		tryClaim(t, c, "k")
		w.Server.Restart(t)
		time.Sleep(20 * time.Minute)
		if n := len(host.Sent(steps.Status)); n != 1 {
			t.Errorf("asked %d times", n)
		}
		if n := logs.FilterField(zap.String("version", "3.4.23")).Len(); n != 1 {
			t.Errorf("%d warnings: %v", n, logs.AllUntimed())
		}
		other, otherHost := w.client(etcdclaims.Config{Logger: zap.New(logger)})
		says(otherHost, "3.4.23")
		tryClaim(t, other, "other")
		time.Sleep(sec)
		if n := logs.FilterField(zap.String("version", "3.4.23")).Len(); n != 2 {
			t.Errorf("%d warnings of two clients", n)
		}
	})
}

// The server that this module requires is good, and says nothing else than its
// version.
func TestOwnVersion(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		logger, logs := observer.New(zapcore.DebugLevel)
		c, host := w.client(etcdclaims.Config{Logger: zap.New(logger)})
		told := ""
		host.Inject(claimtest.Fault{On: steps.Status, Edit: func(reply any) { told = reply.(*pb.StatusResponse).Version }})
		tryClaim(t, c, "k")
		time.Sleep(sec)
		w.CloseClean(c)
		if told != version.Version {
			t.Errorf("the server told version %q, the module requires %s", told, version.Version)
		}
		if n := logs.FilterLevelExact(zapcore.WarnLevel).Len(); n > 0 {
			t.Errorf("warnings: %v", logs.AllUntimed())
		}
		if n := logs.FilterMessageSnippet("version").Len(); n > 0 {
			t.Errorf("the version was not read: %v", logs.AllUntimed())
		}
	})
}

// A server that does not tell, or not yet, fails nothing and delays nothing.
func TestVersionIsNotNeeded(t *testing.T) {
	t.Parallel()
	answers := map[string]claimtest.Fault{
		"denied":          {Code: codes.PermissionDenied},
		"unauthenticated": {Code: codes.Unauthenticated},
		"unknown to it":   {Code: codes.Unimplemented},
		"not there":       {Code: codes.Unavailable},
		"request lost":    {LoseRequest: true},
		"reply lost":      {LoseReply: true},
		"late":            {DelayReply: time.Hour},
	}
	for name, answer := range answers {
		virtualCase(t, name, func(t *testing.T, w *world) {
			logger, logs := observer.New(zapcore.WarnLevel)
			c, host := w.client(etcdclaims.Config{Logger: zap.New(logger)})
			answer.On = steps.Status
			host.Inject(answer)
			begin := time.Now()
			cl := tryClaim(t, c, "k")
			if d := time.Since(begin); d > 100*time.Millisecond {
				t.Errorf("acquiring took %v", d)
			}
			begin = time.Now()
			w.CloseClean(c) // while it asks, in half of these cases
			if d := time.Since(begin); d > 100*time.Millisecond {
				t.Errorf("closing took %v", d)
			}
			if cl.Check() == nil {
				t.Error("held after Close")
			}
			again, _ := w.client(etcdclaims.Config{})
			tryClaim(t, again, "k")
			time.Sleep(time.Minute)
			if entries := logs.AllUntimed(); len(entries) > 0 {
				t.Errorf("logged: %v", entries)
			}
		})
	}
}

// A question that gets no answer is given up, and claims live on.
func TestVersionIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		logger, logs := observer.New(zapcore.DebugLevel)
		c, host := w.client(etcdclaims.Config{Logger: zap.New(logger), TTL: 15 * sec})
		host.Inject(claimtest.Fault{On: steps.Status, LoseRequest: true})
		cl := tryClaim(t, c, "k")
		time.Sleep(time.Minute)
		if logs.FilterMessageSnippet("version not read").FilterLevelExact(zapcore.DebugLevel).Len() != 1 {
			t.Errorf("still waiting? %v", logs.AllUntimed())
		}
		if err := cl.Check(); err != nil {
			t.Error(err)
		}
	})
}

// An etcd client without a connection of its own, such as a test's, is not asked.
func TestVersionWithoutConnection(t *testing.T) {
	t.Parallel()
	real := testetcd.Shared(t).Client(t)
	etcd := clientv3.NewCtxClient(t.Context())
	etcd.KV, etcd.Lease, etcd.Watcher = real.KV, real.Lease, real.Watcher
	logger, logs := observer.New(zapcore.DebugLevel)
	c := newClient(t, etcd, etcdclaims.Config{Prefix: testetcd.Prefix(t), Logger: zap.New(logger)})
	cl := tryClaim(t, c, "k")
	noErr(t, cl.Renew(t.Context()))
	noErr(t, cl.Release(t.Context()))
	if n := logs.FilterMessageSnippet("version").Len(); n > 0 {
		t.Errorf("%v", logs.AllUntimed())
	}
}
