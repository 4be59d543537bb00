package testetcd

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A Cluster is several members in this process.
type Cluster struct {
	members []*Server
}

// StartCluster starts n members for the test. All of them serve when it
// returns, and are stopped when the test ends.
func StartCluster(tb testing.TB, n int, opts ...Option) *Cluster {
	tb.Helper()
	members, err := newMembers(n, tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	c := &Cluster{members: make([]*Server, n)}
	for i := range c.members {
		c.members[i] = &Server{member: members[i], options: newOptions(opts), cluster: c}
	}
	tb.Cleanup(c.crash)
	// One after the other: a new member asks the others whether it is known to
	// them, and waits a second for each that listens but does not answer yet.
	for _, s := range c.members {
		if err := s.launch(); err != nil {
			tb.Fatalf("testetcd: start cluster: %v", err)
		}
	}
	if err := c.each((*Server).ready); err != nil {
		tb.Fatalf("testetcd: start cluster: %v", err)
	}
	return c
}

// each calls f for all members at the same time.
func (c *Cluster) each(f func(*Server) error) error {
	errs := make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, s := range c.members {
		wg.Go(func() { errs[i] = f(s) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// crash stops all members at once. First the raft of all, so that none waits
// for connections which another keeps open.
func (c *Cluster) crash() {
	_ = c.each(func(s *Server) error {
		s.mu.Lock()
		e, g := s.etcd, s.grpc
		s.mu.Unlock()
		if g != nil {
			g.Stop()
		}
		if e != nil {
			e.Server.HardStop()
		}
		return nil
	})
	_ = c.each(func(s *Server) error {
		s.crash()
		return nil
	})
}

// quorum reports whether enough members run to elect a leader.
func (c *Cluster) quorum() bool {
	running := 0
	for _, s := range c.members {
		if s.Etcd() != nil {
			running++
		}
	}
	return running > len(c.members)/2
}

// Endpoints returns the URLs of all members.
func (c *Cluster) Endpoints() []string {
	var endpoints []string
	for _, s := range c.members {
		endpoints = append(endpoints, s.Endpoints()...)
	}
	return endpoints
}

// Client returns a new client of all members that is closed when the test ends.
func (c *Cluster) Client(tb testing.TB) *clientv3.Client {
	tb.Helper()
	return c.ClientWith(tb, clientv3.Config{})
}

// ClientWith is like Client with a configuration of the test's own.
func (c *Cluster) ClientWith(tb testing.TB, cfg clientv3.Config) *clientv3.Client {
	tb.Helper()
	cfg.Endpoints = c.Endpoints()
	return NewClient(tb, cfg)
}

// Len returns how many members the cluster has, running or not.
func (c *Cluster) Len() int { return len(c.members) }

// Member returns one of the members.
func (c *Cluster) Member(i int) *Server { return c.members[i] }

// Stop stops a member and keeps its data. A leader hands over first.
func (c *Cluster) Stop(tb testing.TB, i int) {
	tb.Helper()
	c.members[i].Stop(tb)
}

// Restart starts a member again with its data. It is waited for unless too few
// others run for it to find a leader.
func (c *Cluster) Restart(tb testing.TB, i int) {
	tb.Helper()
	c.members[i].Restart(tb)
}

// Leader returns the member that leads, and waits until there is one that most
// members agree on.
func (c *Cluster) Leader(tb testing.TB) int {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		if i := c.leader(); i >= 0 {
			return i
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			tb.Fatalf("testetcd: no leader: %v", err)
		}
	}
}

// leader returns the index of the leader, or -1. A member that was just
// deposed, or is alone, may still take itself for the leader.
func (c *Cluster) leader() int {
	votes := make(map[types.ID]int)
	ids := make(map[types.ID]int)
	for i, s := range c.members {
		if e := s.Etcd(); e != nil {
			votes[e.Server.Leader()]++
			ids[e.Server.MemberID()] = i
		}
	}
	for id, n := range votes {
		if i, running := ids[id]; running && n > len(c.members)/2 {
			return i
		}
	}
	return -1
}

// MoveLeader makes the given member the leader, which must be running.
func (c *Cluster) MoveLeader(tb testing.TB, to int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	target := c.members[to].Etcd()
	if target == nil {
		tb.Fatalf("testetcd: move leader: member %d is stopped", to)
	}
	for {
		from := c.Leader(tb)
		if from == to {
			return
		}
		// It fails when leadership moves by itself meanwhile, or when the target
		// lags behind, and can then be tried again.
		var err error
		if e := c.members[from].Etcd(); e != nil {
			once, cancel := context.WithTimeout(ctx, 3*time.Second)
			err = e.Server.MoveLeader(once, uint64(e.Server.MemberID()), uint64(target.Server.MemberID()))
			cancel()
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			tb.Fatalf("testetcd: move leader: %v", err)
		}
		if err != nil {
			tb.Logf("testetcd: move leader, trying again: %v", err)
		}
	}
}
