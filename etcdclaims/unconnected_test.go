package etcdclaims_test

import (
	"context"
	"errors"
	"net"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
)

// connections are those of a client.
type connections struct {
	mu   sync.Mutex
	open []net.Conn
}

func (c *connections) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open = append(c.open, conn)
	}
	return conn, err
}

func (c *connections) breakAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
}

// securedClient returns a client with the certificate and the CA of the files, and what it logs.
func securedClient(t *testing.T, s *testetcd.Secured, files transport.TLSInfo, ttl time.Duration,
	by *connections,
) (*etcdclaims.Client, outageLog) {
	t.Helper()
	settings, err := files.ClientConfig()
	noErr(t, err)
	log, logs := logged()
	return claimtest.NewClient(t, testclaims.EtcdFunc(func(tb testing.TB) *clientv3.Client {
		tb.Helper()
		return testetcd.NewClient(tb, clientv3.Config{
			Endpoints: []string{s.Endpoint}, TLS: settings,
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(by.dial)},
		})
	}), etcdclaims.Config{TTL: ttl, AllowShortTTL: true, Logger: log}), logs
}

// unreachableBecause wants a Health, an Unreachable and a log line with the reason.
func unreachableBecause(t *testing.T, c *etcdclaims.Client, logs outageLog, reason *regexp.Regexp) {
	t.Helper()
	eventually(t, "an outage in the log", func() bool { return len(logs.unreachable()) > 0 })
	if line := logs.unreachable()[0]; !reason.MatchString(line.ContextMap()["error"].(string)) {
		t.Errorf("the log has %v, want %v", line.ContextMap()["error"], reason)
	}
	h, err := c.Health(t.Context())
	if !errors.Is(err, etcdclaims.ErrUnreachable) || !reason.MatchString(err.Error()) || !reason.MatchString(h.LastError.Error()) {
		t.Errorf("Health returned %v, and the last error %v, want %v", err, h.LastError, reason)
	}
	if err := c.Unreachable(); err == nil || !reason.MatchString(err.Error()) {
		t.Errorf("Unreachable returned %v, want %v", err, reason)
	}
}

// The certificate of a client expires while it holds a claim, and its connection breaks. A new
// certificate in the same files ends the outage.
func TestExpiredCertificateIsNamed(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	s := testetcd.StartSecured(t)
	files := s.Certificate(t, "app")
	var by connections
	c, logs := securedClient(t, s, files, 2*time.Second, &by)
	cl := tryClaim(t, c, "k")
	s.CertificateUntil(t, "app", time.Now().Add(-time.Minute))
	by.breakAll()
	<-cl.Done()
	reason := regexp.MustCompile("tls: expired certificate|as it does when it refuses the client's certificate")
	var lost *etcdclaims.LostError
	if err := cl.Err(); !errors.As(err, &lost) || lost.Reason != etcdclaims.ReasonExpired || !reason.MatchString(lost.Err.Error()) {
		t.Errorf("the claim was lost with %v, want %v", err, reason)
	}
	unreachableBecause(t, c, logs, reason)
	callsName(t, c, reason)
	s.Certificate(t, "app")
	eventually(t, "the end of the outage", func() bool { return c.Unreachable() == nil })
	tryClaim(t, c, "k2")
}

// A client that never had a connection names the reason, too.
func TestWrongCAIsNamed(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	s, files := trustingAnother(t)
	c, logs := securedClient(t, s, files, 6*time.Second, &connections{})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := c.TryAcquire(ctx, "k")
	wantIs(t, err, context.DeadlineExceeded)
	unreachableBecause(t, c, logs, regexp.MustCompile("certificate signed by unknown authority"))
}

// trustingAnother returns an etcd, and the files of a client that trusts the CA of another etcd.
func trustingAnother(t *testing.T) (*testetcd.Secured, transport.TLSInfo) {
	t.Helper()
	s, other := testetcd.StartSecured(t), testetcd.StartSecured(t)
	files := s.Certificate(t, "app")
	files.TrustedCAFile = other.Certificate(t, "app").TrustedCAFile
	return s, files
}

// A call whose ctx ends before the client has a connection names the handshake that failed.
func TestCallsNameTheFailedHandshake(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	s, files := trustingAnother(t)
	c, _ := securedClient(t, s, files, 15*time.Second, &connections{})
	callsName(t, c, regexp.MustCompile("certificate signed by unknown authority"))
}

// callsName checks that calls whose contexts end while there is no connection name the reason.
func callsName(t *testing.T, c *etcdclaims.Client, reason *regexp.Regexp) {
	t.Helper()
	q, err := queue.New(c, queue.Config{Name: "q"})
	noErr(t, err)
	t.Cleanup(func() { _ = q.Close(t.Context()) })
	var all sync.WaitGroup
	for name, call := range map[string]func(context.Context) error{
		"TryAcquire": func(ctx context.Context) error { return second(c.TryAcquire(ctx, "x")) },
		"Acquire":    func(ctx context.Context) error { return second(c.Acquire(ctx, "x")) },
		"Lookup":     func(ctx context.Context) error { return second(c.Lookup(ctx, "x")) },
		"Runner.Run": func(ctx context.Context) error {
			return works(c).Run(ctx, "w", func(context.Context, *work.Work) error { return nil })
		},
		"GrantLease": func(ctx context.Context) error { return second(core.Of(c).GrantLease(ctx, time.Minute)) },
		"TryClaim":   func(ctx context.Context) error { return second(q.TryClaim(ctx, 1)) },
		"Enqueue":    func(ctx context.Context) error { return second(q.Enqueue(ctx, queue.NewItem(nil))) },
		"Claim":      func(ctx context.Context) error { return second(q.Claim(ctx, 1)) },
	} {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || !reason.MatchString(err.Error()) {
				t.Errorf("%s: %v, want %v", name, err, reason)
			}
		})
	}
	all.Wait()
}

func second(_ any, err error) error { return err }

// A client whose endpoints belong to two clusters logs it, once.
func TestTwoClustersAreLogged(t *testing.T) {
	t.Parallel()
	one, two := testetcd.Start(t), testetcd.Start(t)
	log, logs := logged()
	c := claimtest.NewClient(t, testclaims.EtcdFunc(one.Client), etcdclaims.Config{Logger: log})
	lines := func() []observer.LoggedEntry {
		return logs.FilterMessage("etcd answered as another cluster; see that all endpoints belong to one").All()
	}
	tryClaim(t, c, "k")
	if l := lines(); len(l) > 0 {
		t.Fatalf("one cluster: %v", l)
	}
	for range 2 {
		for _, s := range []*testetcd.Server{two, one} {
			c.Etcd().SetEndpoints(s.Endpoints()...)
			before := c.Stats().Requests
			eventually(t, "some requests", func() bool {
				_, _ = c.Lookup(t.Context(), "k") // by one of the two
				return c.Stats().Requests > before+5 && len(lines()) > 0
			})
		}
	}
	if l := lines(); len(l) != 1 || l[0].ContextMap()["cluster"] == l[0].ContextMap()["other"] {
		t.Errorf("%v", l)
	}
}
