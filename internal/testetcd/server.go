package testetcd

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/raft/v3"
	"google.golang.org/grpc"
)

// A Server is one etcd member in this process. Its methods may be called
// concurrently, but starting and stopping it at the same time makes no sense.
type Server struct {
	member  member
	options options
	cluster *Cluster // nil if it stands alone

	mu   sync.Mutex
	etcd *embed.Etcd  // nil while stopped
	grpc *grpc.Server // set by etcd once it serves
}

// Start starts a member of its own for the test. It serves when Start returns,
// and is stopped when the test ends.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	members, err := newMembers(1, tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{member: members[0], options: newOptions(opts)}
	tb.Cleanup(s.crash)
	if err := s.start(); err != nil {
		tb.Fatalf("testetcd: start: %v", err)
	}
	return s
}

// Endpoints returns the URL clients dial. It stays the same over restarts.
func (s *Server) Endpoints() []string {
	urls := s.member.config(s.options).AdvertiseClientUrls
	endpoints := make([]string, len(urls))
	for i := range urls {
		endpoints[i] = urls[i].String()
	}
	return endpoints
}

// Client returns a new client that is closed when the test ends.
func (s *Server) Client(tb testing.TB) *clientv3.Client {
	tb.Helper()
	return s.ClientWith(tb, clientv3.Config{})
}

// ClientWith is like Client with a configuration of the test's own.
func (s *Server) ClientWith(tb testing.TB, cfg clientv3.Config) *clientv3.Client {
	tb.Helper()
	cfg.Endpoints = s.Endpoints()
	return NewClient(tb, cfg)
}

// Etcd returns the running member, or nil while it is stopped. A restart makes
// a new one.
func (s *Server) Etcd() *embed.Etcd {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.etcd
}

// Stop stops the member and keeps its data. Connections break at once; a leader
// hands over to another member first, if there is one.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	e, g := s.detach()
	if e == nil {
		return
	}
	stopEtcd(e, g)
}

// Restart starts the member again with its data at its old address, after
// stopping it if necessary. As a member of a cluster it is only waited for if
// enough others run for it to find a leader.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Stop(tb)
	if err := s.launch(); err != nil {
		tb.Fatalf("testetcd: restart %s: %v", s.member.name, err)
	}
	if s.cluster != nil && !s.cluster.quorum() {
		return
	}
	if err := s.ready(); err != nil {
		tb.Fatalf("testetcd: restart %s: %v", s.member.name, err)
	}
}

func (s *Server) start() error {
	if err := s.launch(); err != nil {
		return err
	}
	return s.ready()
}

// launch starts the member without waiting until it serves. A member that was stopped
// may leave its address a moment later.
func (s *Server) launch() error {
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if err := s.tryLaunch(); !errors.Is(err, syscall.EADDRINUSE) || time.Since(begin) > patience {
			return err
		}
	}
}

func (s *Server) tryLaunch() error {
	cfg := s.member.config(s.options)
	register := cfg.ServiceRegister
	cfg.ServiceRegister = func(g *grpc.Server) {
		s.mu.Lock()
		s.grpc = g
		s.mu.Unlock()
		if register != nil {
			register(g)
		}
	}
	// A request in progress must not find the backend closed below it.
	cfg.GRPCAdditionalServerOptions = append(cfg.GRPCAdditionalServerOptions, grpc.WaitForHandlers(true))
	if err := awaitUnlocked(cfg.Dir); err != nil {
		return err
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.etcd = e
	s.mu.Unlock()
	return nil
}

// ready waits until the member serves.
func (s *Server) ready() error {
	e := s.Etcd()
	if e == nil {
		return errors.New("stopped")
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("took too long"))
	defer cancel()
	if s.cluster == nil {
		campaign(ctx, e.Server)
	}
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		return err
	case <-e.Server.StopNotify():
		return errors.New("stopped")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.member.config(s.options).ListenClientUrls[0].Scheme != "http" {
		return nil // needs credentials which only the test has
	}
	return awaitServing(ctx, s.member.client)
}

// crash stops the member without handing over leadership, at the end of a test
// or to shut down a whole cluster.
func (s *Server) crash() {
	e, g := s.detach()
	if e == nil {
		return
	}
	if g != nil {
		g.Stop()
	}
	e.Server.HardStop()
	e.Close()
}

func (s *Server) detach() (*embed.Etcd, *grpc.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, g := s.etcd, s.grpc
	s.etcd, s.grpc = nil, nil
	return e, g
}

// stopEtcd stops a member. By itself, etcd gives open requests, which include
// every watch, seven seconds to end before it breaks connections.
func stopEtcd(e *embed.Etcd, g *grpc.Server) {
	if g != nil {
		g.Stop()
	}
	e.Close()
}

// campaign makes a member that is alone its own leader without waiting for its
// election timeout, which costs up to a second and decides nothing. Nothing is
// lost but time if the node cannot be found.
func campaign(ctx context.Context, s *etcdserver.EtcdServer) {
	node, err := raftNode(s)
	if err != nil {
		return
	}
	for s.Leader() == 0 {
		// Before it has applied what it knows to be committed, raft refuses to
		// campaign, or panics over entries it no longer has.
		if st := node.Status(); st.Applied >= st.HardState.GetCommit() && st.Applied > 0 {
			if err := node.Campaign(ctx); err != nil {
				return
			}
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return
		}
	}
}

// raftNode digs the raft node out of a server, which does not offer it.
func raftNode(s *etcdserver.EtcdServer) (raft.Node, error) {
	field := reflect.ValueOf(s).Elem().FieldByName("r")
	if !field.IsValid() || field.Kind() != reflect.Struct {
		return nil, errors.New("testetcd: the server has no raft node in field r")
	}
	field = field.FieldByName("Node")
	if !field.IsValid() || field.Type() != reflect.TypeFor[raft.Node]() {
		return nil, errors.New("testetcd: the server's raft node has no field Node")
	}
	node := *(*raft.Node)(unsafe.Pointer(field.UnsafeAddr()))
	if node == nil {
		return nil, fmt.Errorf("testetcd: the server has not started")
	}
	return node, nil
}
