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
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A Process is one etcd member in a process of its own, which can be paused
// and killed. Its methods are not for concurrent use.
type Process struct {
	member  member
	options options
	cluster []*Process // itself included

	mu     sync.Mutex
	proc   *os.Process
	dead   chan struct{} // closed when proc was reaped
	paused bool
}

// StartProcess starts a member as a process for the test. It serves when
// StartProcess returns, and is killed when the test ends, or its process does.
func StartProcess(tb testing.TB, opts ...Option) *Process {
	tb.Helper()
	return StartProcessCluster(tb, 1, opts...)[0]
}

// StartProcessCluster starts n members as processes that form a cluster.
func StartProcessCluster(tb testing.TB, n int, opts ...Option) []*Process {
	tb.Helper()
	needSignals(tb)
	if _, err := binary(); err != nil {
		tb.Fatal(err)
	}
	members, err := newMembers(n, tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	ps := make([]*Process, n)
	for i := range ps {
		ps[i] = &Process{member: members[i], options: newOptions(opts), cluster: ps}
		tb.Cleanup(ps[i].kill)
	}
	for _, p := range ps {
		if err := p.launch(); err != nil {
			tb.Fatalf("testetcd: start process: %v", err)
		}
	}
	for _, p := range ps {
		if err := p.ready(); err != nil {
			tb.Fatalf("testetcd: start process: %v", err)
		}
	}
	return ps
}

// Endpoints returns the URL clients dial. It stays the same over restarts.
func (p *Process) Endpoints() []string { return []string{"http://" + p.member.client} }

// Client returns a new client that is closed when the test ends.
func (p *Process) Client(tb testing.TB) *clientv3.Client {
	tb.Helper()
	return newClient(tb, clientv3.Config{Endpoints: p.Endpoints()})
}

// Dir returns the data directory.
func (p *Process) Dir() string { return p.member.dir }

// Pid returns the process id, or 0 while there is no process.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		return 0
	}
	return p.proc.Pid
}

// Pause stops the process where it is, as SIGSTOP does: its connections stay
// open and nothing answers. All its threads have stopped when Pause returns.
func (p *Process) Pause(tb testing.TB) {
	tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		tb.Fatalf("testetcd: pause %s: no process", p.member.name)
	}
	if err := stopProcess(p.proc); err != nil {
		tb.Fatalf("testetcd: pause %s: %v", p.member.name, err)
	}
	p.paused = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		stopped, err := isStopped(p.proc.Pid)
		if err != nil {
			tb.Fatalf("testetcd: pause %s: %v", p.member.name, err)
		}
		if stopped {
			return
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			tb.Fatalf("testetcd: pause %s: it goes on: %v", p.member.name, err)
		}
	}
}

// Resume lets a paused process go on.
func (p *Process) Resume(tb testing.TB) {
	tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		tb.Fatalf("testetcd: resume %s: no process", p.member.name)
	}
	if err := continueProcess(p.proc); err != nil {
		tb.Fatalf("testetcd: resume %s: %v", p.member.name, err)
	}
	p.paused = false
}

// Kill kills the process without warning, paused or not, and waits for its end.
func (p *Process) Kill(tb testing.TB) {
	tb.Helper()
	p.kill()
}

func (p *Process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		return
	}
	_ = p.proc.Kill() // it may be dead already
	<-p.dead
	p.proc, p.paused = nil, false
}

// Restart starts the process again with its data at its old address, after
// killing it if necessary. As a member of a cluster it is only waited for if
// enough others run for it to find a leader.
func (p *Process) Restart(tb testing.TB) {
	tb.Helper()
	p.kill()
	if err := p.launch(); err != nil {
		tb.Fatalf("testetcd: restart %s: %v", p.member.name, err)
	}
	running := 0
	for _, q := range p.cluster {
		if q.runs() {
			running++
		}
	}
	if running <= len(p.cluster)/2 {
		return
	}
	if err := p.ready(); err != nil {
		tb.Fatalf("testetcd: restart %s: %v", p.member.name, err)
	}
}

func (p *Process) runs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proc != nil && !p.paused
}

// launch starts the process without waiting until it serves.
func (p *Process) launch() error {
	bin, err := binary()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.member.dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(bin, p.member.flags(p.options)...)
	cmd.Dir = filepath.Dir(p.member.dir)
	cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH)
	cmd.Stdout, cmd.Stderr = log, log
	dieWithParent(cmd)

	started, dead := make(chan error, 1), make(chan struct{})
	go func() {
		// The kernel kills the child when the thread dies that started it, not
		// the process: so a thread of its own stays with it to the end.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(dead)
		err := cmd.Start()
		_ = log.Close() // the child has its own
		started <- err
		if err == nil {
			_ = cmd.Wait() // it was killed, or told its log why it ended
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proc, p.dead = cmd.Process, dead
	return nil
}

// ready waits until the process serves.
func (p *Process) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p.mu.Lock()
	dead := p.dead
	p.mu.Unlock()
	go func() {
		select {
		case <-dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := awaitServing(ctx, p.member.client); err != nil {
		return fmt.Errorf("%w; the log of etcd ends with:\n%s", err, p.logTail())
	}
	select {
	case <-dead:
		return errors.New("the process ended as soon as it served")
	default:
		return nil
	}
}

func (p *Process) logPath() string { return p.member.dir + ".log" }

func (p *Process) logTail() string {
	log, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-4096):])
}
