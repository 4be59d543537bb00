package claimtest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/crypto/bcrypt"
)

// An Etcd is what a client can be connected to: a [Server] or [Members], whose
// clients nothing happens to, or a [Host].
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

// MaxTxnOps limits the operations in one transaction, 128 by default.
func MaxTxnOps(n uint) Option {
	return Tweak(func(cfg *embed.Config) { cfg.MaxTxnOps = n })
}

// Quota limits the backend to so many bytes; see [Operator.FillQuota] for etcd's
// behaviour beyond.
func Quota(bytes int64) Option {
	return Tweak(func(cfg *embed.Config) { cfg.QuotaBackendBytes = bytes })
}

// Auth turns authentication on. The clients of the test log in with a password,
// which lets them do anything but administer etcd.
func Auth() Option {
	return func(o *options) {
		o.auth = true
		// Each login costs a hash, in real time.
		o.etcd = append(o.etcd, testetcd.Tweak(func(cfg *embed.Config) { cfg.BcryptCost = uint(bcrypt.MinCost) }))
	}
}

// Tweak changes the server's configuration directly. It is called at each start.
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

// backend is what a server gives its clients.
type backend struct {
	dial    func(ctx context.Context, addr string) (net.Conn, error)
	connect func(tb testing.TB, cfg clientv3.Config) *clientv3.Client
	secured bool
}

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

// client returns a client that is logged in if it must be.
func (b backend) client(tb testing.TB, cfg clientv3.Config) *clientv3.Client {
	tb.Helper()
	if b.secured {
		cfg.Username, cfg.Password = userName, userName
	}
	return b.connect(tb, cfg)
}

// A Server is one member of etcd. Its methods are for the test's own goroutine,
// since they fail the test where something cannot be done.
type Server struct {
	*Operator
	backend backend
	virtual *testetcd.Virtual // one of the two
	real    *testetcd.Server
}

// Start starts a member for the test, which is stopped when the test ends: in
// virtual time inside a testing/synctest bubble, and else in real time.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	o := newOptions(opts)
	s := &Server{}
	if inBubble() {
		s.virtual = testetcd.StartVirtual(tb, o.etcd...)
		s.backend = backend{
			dial:    func(ctx context.Context, _ string) (net.Conn, error) { return s.virtual.Dial(ctx) },
			connect: s.virtual.ClientWith,
		}
	} else {
		s.real = testetcd.Start(tb, o.etcd...)
		s.backend = backend{dial: dialTCP, connect: s.real.ClientWith}
	}
	s.Operator = newOperator(tb, &s.backend, o.auth)
	return s
}

// inBubble tells by the year: a bubble's clock begins with 2000.
func inBubble() bool { return time.Now().Year() < 2020 }

// Etcd implements [Etcd].
func (s *Server) Etcd(tb testing.TB) *clientv3.Client {
	tb.Helper()
	return newHost(tb, s.backend).Etcd(tb)
}

// Host returns a new machine with a network to the server.
func (s *Server) Host(tb testing.TB) *Host {
	tb.Helper()
	return newHost(tb, s.backend)
}

// Endpoints returns the URL of the server. In virtual time nobody listens there.
func (s *Server) Endpoints() []string {
	if s.virtual != nil {
		return s.virtual.Endpoints()
	}
	return s.real.Endpoints()
}

// Stop stops the server, which keeps its data. Connections break.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	if s.virtual != nil {
		s.virtual.Stop(tb)
		return
	}
	s.real.Stop(tb)
}

// Restart starts the server again on its data, after stopping it if it runs. As
// with any etcd, all leases then live for their whole TTL from now.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if s.virtual != nil {
		s.virtual.Restart(tb)
		return
	}
	s.real.Restart(tb)
}

// A Snapshot is a backup of a server.
type Snapshot = testetcd.Snapshot

// Snapshot makes a backup, as etcdctl snapshot save does.
func (s *Server) Snapshot(tb testing.TB) Snapshot {
	tb.Helper()
	return testetcd.TakeSnapshot(tb, s.root)
}

// Restore replaces the server by one that has what the backup has, as etcdutl
// snapshot restore does. Revisions go back: who has seen greater ones refuses
// to claim until the epoch is raised; see [Operator.RaiseEpoch]. With a bump
// greater than 0 they go on that far beyond the backup's, which is etcdutl's
// --bump-revision with --mark-compacted.
//
// Under [Auth], clients from before hang: etcd makes a token wait for the log
// index at which it was issued, which the restored server has yet to reach. They
// have to be made anew.
func (s *Server) Restore(tb testing.TB, from Snapshot, bump uint64) {
	tb.Helper()
	if s.virtual != nil {
		s.virtual.Restore(tb, from, bump)
	} else {
		s.real.Restore(tb, from, bump)
	}
	if s.auth {
		s.root = s.backend.admin(tb)
	}
}
