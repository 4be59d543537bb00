package claimtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Members are the members of one etcd cluster, in real time. Call their methods on
// the test's own goroutine: they end the test if they fail.
type Members struct {
	*operator
	backend
	cluster   *testetcd.Cluster // one of the two
	processes []*testetcd.Process
}

// Cluster starts n members in this process and stops them when the test ends. It
// cannot be used inside a bubble.
func Cluster(tb testing.TB, n int, opts ...Option) *Members {
	tb.Helper()
	realTime(tb, "Cluster")
	o := newOptions(opts)
	m := &Members{cluster: testetcd.StartCluster(tb, n, o.etcd...)}
	m.backend = backend{dial: dialTCP, connect: m.cluster.ClientWith}
	m.operator = newOperator(tb, &m.backend, o.auth)
	return m
}

// Processes starts n members as processes, which can be paused and killed, and
// ends them with the test. Its first use builds etcd, unless TESTETCD_BINARY names
// a binary. It needs Linux or another Unix.
func Processes(tb testing.TB, n int, opts ...Option) *Members {
	tb.Helper()
	realTime(tb, "Processes")
	o := newOptions(opts)
	m := &Members{processes: testetcd.StartProcessCluster(tb, n, o.etcd...)}
	m.backend = backend{dial: dialTCP, connect: func(tb testing.TB, cfg clientv3.Config) *clientv3.Client {
		tb.Helper()
		cfg.Endpoints = m.Endpoints()
		return testetcd.NewClient(tb, cfg)
	}}
	m.operator = newOperator(tb, &m.backend, o.auth)
	return m
}

func realTime(tb testing.TB, name string) {
	tb.Helper()
	if inBubble() {
		tb.Fatalf("claimtest: %s: members talk over sockets, which stop virtual time: use it outside of bubbles", name)
	}
}

// Len returns the number of members, running or not.
func (m *Members) Len() int {
	if m.cluster != nil {
		return m.cluster.Len()
	}
	return len(m.processes)
}

// Endpoints returns the URLs of the members, in order.
func (m *Members) Endpoints() []string {
	if m.cluster != nil {
		return m.cluster.Endpoints()
	}
	var all []string
	for _, p := range m.processes {
		all = append(all, p.Endpoints()...)
	}
	return all
}

// Stop stops a member, which keeps its data. A member of this process is shut down
// in order; a member that is a process is killed by SIGKILL.
func (m *Members) Stop(tb testing.TB, i int) {
	tb.Helper()
	if m.cluster != nil {
		m.cluster.Stop(tb, i)
		return
	}
	m.processes[i].Kill(tb)
}

// Restart starts a member again with its data.
func (m *Members) Restart(tb testing.TB, i int) {
	tb.Helper()
	if m.cluster != nil {
		m.cluster.Restart(tb, i)
		return
	}
	m.processes[i].Restart(tb)
}

// Kill kills a member's process by SIGKILL.
func (m *Members) Kill(tb testing.TB, i int) {
	tb.Helper()
	m.process(tb, i).Kill(tb)
}

// Pause stops a member's process by SIGSTOP. Its connections stay open, and nothing
// answers.
func (m *Members) Pause(tb testing.TB, i int) {
	tb.Helper()
	m.process(tb, i).Pause(tb)
}

// Resume continues a paused process.
func (m *Members) Resume(tb testing.TB, i int) {
	tb.Helper()
	m.process(tb, i).Resume(tb)
}

func (m *Members) process(tb testing.TB, i int) *testetcd.Process {
	tb.Helper()
	if m.processes == nil {
		tb.Fatal("claimtest: members of this process cannot be paused or killed: start them with Processes")
	}
	return m.processes[i]
}

// Leader returns the number of the leader. It waits until there is one.
func (m *Members) Leader(tb testing.TB) int {
	tb.Helper()
	leader := -1
	m.retry(tb, "looking for the leader", func(ctx context.Context) (bool, error) {
		var err error
		leader, err = m.leader(ctx)
		return err == nil, err
	})
	return leader
}

var errNoLeader = errors.New("no member says that it leads")

func (m *Members) leader(ctx context.Context) (int, error) {
	err := errNoLeader
	for i, endpoint := range m.Endpoints() {
		// One that does not answer is not the leader, or cannot be.
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		status, serr := m.root.Status(ctx, endpoint)
		cancel()
		switch {
		case serr != nil:
			err = serr
		case status.Leader == status.Header.MemberId:
			return i, nil
		}
	}
	return -1, err
}

// MoveLeader makes member to the leader, and returns when it is.
func (m *Members) MoveLeader(tb testing.TB, to int) {
	tb.Helper()
	var leader *clientv3.Client // asks only the member that leads, as must be
	m.retry(tb, fmt.Sprintf("moving the leader to member %d", to), func(ctx context.Context) (bool, error) {
		from, err := m.leader(ctx)
		if err != nil || from == to {
			return err == nil, err
		}
		if leader == nil {
			leader = m.backend.admin(tb)
		}
		leader.SetEndpoints(m.Endpoints()[from])
		// It fails where leadership moves by itself meanwhile: look again.
		return false, m.moveLeader(ctx, leader, to)
	})
}

func (m *Members) moveLeader(ctx context.Context, leader *clientv3.Client, to int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	status, err := m.root.Status(ctx, m.Endpoints()[to])
	if err != nil {
		return err
	}
	_, err = leader.MoveLeader(ctx, status.Header.MemberId)
	return err
}
