package testetcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A Process is a [ProcessMember] of a test, which fails if something cannot be
// done. Its methods are not for concurrent use.
type Process struct{ *ProcessMember }

// StartProcess starts a member as a process for the test. It serves when
// StartProcess returns, and is killed when the test ends, or its process does.
func StartProcess(tb testing.TB, opts ...Option) *Process {
	tb.Helper()
	return StartProcessCluster(tb, 1, opts...)[0]
}

// StartProcessCluster starts n members as processes that form a cluster.
func StartProcessCluster(tb testing.TB, n int, opts ...Option) []*Process {
	tb.Helper()
	if err := Signals(); err != nil {
		tb.Skip(err)
	}
	c, err := NewProcessCluster(tb.TempDir(), n, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Stop)
	ps := make([]*Process, n)
	for i, m := range c.Members {
		ps[i] = &Process{m}
	}
	return ps
}

// Client returns a new client that is closed when the test ends.
func (p *Process) Client(tb testing.TB) *clientv3.Client {
	tb.Helper()
	return NewClient(tb, clientv3.Config{Endpoints: p.Endpoints()})
}

// Pause is [ProcessMember.Pause].
func (p *Process) Pause(tb testing.TB) {
	tb.Helper()
	must(tb, p.ProcessMember.Pause())
}

// Resume is [ProcessMember.Resume].
func (p *Process) Resume(tb testing.TB) {
	tb.Helper()
	must(tb, p.ProcessMember.Resume())
}

// Kill is [ProcessMember.Kill].
func (p *Process) Kill(tb testing.TB) {
	tb.Helper()
	p.ProcessMember.Kill()
}

// Restart is [ProcessMember.Restart].
func (p *Process) Restart(tb testing.TB) {
	tb.Helper()
	must(tb, p.ProcessMember.Restart())
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// A ProcessCluster is some members in processes of their own, for programs that
// are not tests. They end with this process, if not before.
type ProcessCluster struct{ Members []*ProcessMember }

// NewProcessCluster starts n members that keep their data, and next to it their
// logs, in dir. All of them serve when it returns.
func NewProcessCluster(dir string, n int, opts ...Option) (*ProcessCluster, error) {
	if err := Signals(); err != nil {
		return nil, err
	}
	if _, err := newOptions(opts).etcd(); err != nil {
		return nil, err
	}
	members, err := newMembers(n, dir)
	if err != nil {
		return nil, err
	}
	c := &ProcessCluster{Members: make([]*ProcessMember, n)}
	for i := range c.Members {
		c.Members[i] = &ProcessMember{member: members[i], options: newOptions(opts), cluster: c}
	}
	if err := c.start(); err != nil {
		c.Stop()
		return nil, fmt.Errorf("testetcd: start process: %w", err)
	}
	return c, nil
}

func (c *ProcessCluster) start() error {
	for _, m := range c.Members {
		if err := m.launch(); err != nil {
			return err
		}
	}
	for _, m := range c.Members {
		if err := m.ready(); err != nil {
			return err
		}
	}
	return nil
}

// Endpoints returns the URLs of all members.
func (c *ProcessCluster) Endpoints() []string {
	var endpoints []string
	for _, m := range c.Members {
		endpoints = append(endpoints, m.Endpoints()...)
	}
	return endpoints
}

// Stop kills all members. Their data stays where it is.
func (c *ProcessCluster) Stop() {
	for _, m := range c.Members {
		m.Kill()
	}
}

// quorum reports whether enough members run to elect a leader.
func (c *ProcessCluster) quorum() bool {
	running := 0
	for _, m := range c.Members {
		if m.runs() {
			running++
		}
	}
	return running > len(c.Members)/2
}

// A ProcessMember is one etcd member in a process of its own, which can be
// paused and killed. Its methods may be called concurrently, but starting and
// killing it at the same time makes no sense.
type ProcessMember struct {
	member  member
	options options
	cluster *ProcessCluster

	mu     sync.Mutex
	child  *Child // nil while there is no process
	paused bool
}

// Endpoints returns the URL clients dial. It stays the same over restarts.
func (m *ProcessMember) Endpoints() []string { return []string{"http://" + m.member.client} }

// Dir returns the data directory.
func (m *ProcessMember) Dir() string { return m.member.dir }

// Pid returns the process id, or 0 while there is no process.
func (m *ProcessMember) Pid() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.child == nil {
		return 0
	}
	return m.child.Pid()
}

// Pause stops the process where it is: see [Child.Pause].
func (m *ProcessMember) Pause() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.child == nil {
		return fmt.Errorf("testetcd: pause %s: no process", m.member.name)
	}
	m.paused = true
	if err := m.child.Pause(); err != nil {
		return fmt.Errorf("testetcd: pause %s: %w", m.member.name, err)
	}
	return nil
}

// Resume lets a paused process go on.
func (m *ProcessMember) Resume() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.child == nil {
		return fmt.Errorf("testetcd: resume %s: no process", m.member.name)
	}
	if err := m.child.Resume(); err != nil {
		return fmt.Errorf("testetcd: resume %s: %w", m.member.name, err)
	}
	m.paused = false
	return nil
}

// Kill kills the process without warning, paused or not, and waits for its end.
func (m *ProcessMember) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.child == nil {
		return
	}
	m.child.Kill()
	m.child, m.paused = nil, false
}

// Restart starts the process again with its data at its old address, after
// killing it if necessary. As a member of a cluster it is only waited for if
// enough others run for it to find a leader.
func (m *ProcessMember) Restart() error {
	m.Kill()
	err := m.launch()
	if err == nil && m.cluster.quorum() {
		err = m.ready()
	}
	if err != nil {
		return fmt.Errorf("testetcd: restart %s: %w", m.member.name, err)
	}
	return nil
}

func (m *ProcessMember) runs() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.child != nil && !m.paused
}

// launch starts the process without waiting until it serves.
func (m *ProcessMember) launch() error {
	bin, err := m.options.etcd()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(m.member.dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(m.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd := exec.Command(bin, m.member.flags(m.options)...)
	cmd.Dir = filepath.Dir(m.member.dir)
	cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH, stallEnv+"="+m.stallPath())
	cmd.Stdout, cmd.Stderr = log, log
	child, err := StartChild(cmd)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.child = child
	return nil
}

// ready waits until the process serves.
func (m *ProcessMember) ready() error {
	m.mu.Lock()
	child := m.child
	m.mu.Unlock()
	if child == nil {
		return errors.New("the process was killed while it started")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go func() {
		select {
		case <-child.Dead():
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := awaitServing(ctx, m.member.client); err != nil {
		return fmt.Errorf("%w; the log of etcd ends with:\n%s", err, m.logTail())
	}
	select {
	case <-child.Dead():
		return errors.New("the process ended as soon as it served")
	default:
		return nil
	}
}

func (m *ProcessMember) logPath() string { return m.member.dir + ".log" }

func (m *ProcessMember) logTail() string {
	log, err := os.ReadFile(m.logPath())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-4096):])
}
