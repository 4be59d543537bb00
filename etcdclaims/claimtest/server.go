package claimtest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// An Etcd is something that clients can connect to: a [Server] or [Members], whose
// connections have no faults, or a [Host].
type Etcd interface {
	// Etcd returns a new client that is closed when the test ends.
	Etcd(tb testing.TB) *clientv3.Client
}

// An Option changes how a server is configured.
type Option func(*options)

type options struct {
	etcd []testetcd.Option
	auth bool
}

// Auth enables authentication. Clients of the test log in with a password, and have
// all permissions except administration.
func Auth() Option {
	return func(o *options) { o.auth = true }
}

// Tweak changes the server's configuration: its limits, such as MaxTxnOps and
// QuotaBackendBytes, or the interval of compactions. f is called at each start.
func Tweak(f func(*embed.Config)) Option {
	return func(o *options) { o.etcd = append(o.etcd, testetcd.Tweak(f)) }
}

func newOptions(opts []Option) options {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// backend is how clients connect to a server. Its methods are those of Server and Members.
type backend struct {
	dial    func(ctx context.Context, addr string) (net.Conn, error)
	connect func(tb testing.TB, cfg clientv3.Config) *clientv3.Client
	secured bool
}

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

// client returns a client, logged in if the server requires that.
func (b backend) client(tb testing.TB, cfg clientv3.Config) *clientv3.Client {
	tb.Helper()
	if b.secured {
		cfg.Username, cfg.Password = userName, userName
	}
	return b.connect(tb, cfg)
}

// Etcd implements [Etcd].
func (b *backend) Etcd(tb testing.TB) *clientv3.Client {
	tb.Helper()
	return newHost(tb, *b).Etcd(tb)
}

// Host returns a new machine that is connected to the server, or to all members.
func (b *backend) Host(tb testing.TB) *Host {
	tb.Helper()
	return newHost(tb, *b)
}

// A Server is a single member of etcd. Call its methods on the test's own
// goroutine: they end the test if they fail.
type Server struct {
	*operator
	backend
	server server // in virtual or in real time
}

// server is a member of etcd.
type server interface {
	ClientWith(tb testing.TB, cfg clientv3.Config) *clientv3.Client
	Endpoints() []string
	Stop(tb testing.TB)
	Restart(tb testing.TB)
	Restore(tb testing.TB, from Snapshot, bump uint64)
}

// Start starts a member and stops it when the test ends. It uses virtual time inside
// a testing/synctest bubble, and real time outside.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	o := newOptions(opts)
	s := &Server{}
	if inBubble() {
		virtual := testetcd.StartVirtual(tb, o.etcd...)
		s.server, s.dial = virtual, func(ctx context.Context, _ string) (net.Conn, error) { return virtual.Dial(ctx) }
	} else {
		s.server, s.dial = testetcd.Start(tb, o.etcd...), dialTCP
	}
	s.connect = s.server.ClientWith
	s.operator = newOperator(tb, &s.backend, o.auth)
	return s
}

// inBubble reports whether it is called in a bubble, whose clock begins in 2000.
func inBubble() bool { return time.Now().Year() < 2020 }

// Endpoints returns the URL of the server. In virtual time nothing listens there.
func (s *Server) Endpoints() []string { return s.server.Endpoints() }

// Stop stops the server, which keeps its data. Connections break.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	s.server.Stop(tb)
}

// Restart stops the server if it runs, and starts it again with its data. All leases
// then live for their whole TTL from now, as with any etcd.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.server.Restart(tb)
}

// A Snapshot is a backup of a server.
type Snapshot = testetcd.Snapshot

// Snapshot takes a backup, as etcdctl snapshot save does.
func (s *Server) Snapshot(tb testing.TB) Snapshot {
	tb.Helper()
	return testetcd.TakeSnapshot(tb, s.root)
}

// Restore replaces the server by one with the content of the backup, as etcdutl
// snapshot restore does. Revisions go back: clients that have seen greater ones
// refuse to claim until the epoch is raised ([Server.RaiseEpoch]). A bump greater
// than 0 makes revisions continue that far beyond those of the backup, as etcdutl's
// --bump-revision with --mark-compacted does.
//
// Under [Auth], earlier clients hang and have to be made again: etcd makes a token
// wait for the log index at which it was issued, which the restored server has not
// reached.
func (s *Server) Restore(tb testing.TB, from Snapshot, bump uint64) {
	tb.Helper()
	s.server.Restore(tb, from, bump)
	if s.auth {
		s.root = s.backend.admin(tb)
	}
}

// NewClient returns a client of claims. Each client counts as a process of its own.
// When the test ends, the network of its host is healed and the client is closed.
func NewClient(tb testing.TB, etcd Etcd, cfg etcdclaims.Config) *etcdclaims.Client {
	tb.Helper()
	c, err := etcdclaims.New(etcd.Etcd(tb), cfg)
	if err != nil {
		tb.Fatalf("claimtest: new client: %v", err)
	}
	tb.Cleanup(func() {
		if h, ok := etcd.(*Host); ok {
			h.restore()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.Close(ctx) // what it could not release ends with its lease
	})
	return c
}
