package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
)

// A kind is a server that is not etcd, and how it is configured.
type kind struct {
	name  string
	start func(ctx context.Context, dir, address string) (*testetcd.Child, error)
	ready func(ctx context.Context, dir, address string) error
}

// A server is one that runs, for as long as the stage does: starting Postgres
// takes seconds, and what one point leaves behind does not slow the next.
type server struct {
	address string // host:port, of the loopback device as etcd's is
	child   *testetcd.Child
	err     error // why it does not run
}

// patience is how long a server may take to start, and to stop.
const patience = 30 * time.Second

// server returns the server of the kind, which is started at first use. An error
// that it is not installed is the same each time.
func (st *stage) server(ctx context.Context, k kind) (*server, error) {
	s := st.servers[k.name]
	if s == nil {
		s = new(server)
		st.servers[k.name] = s
		s.err = s.run(ctx, k, filepath.Join(st.data, k.name))
	}
	return s, s.err
}

func (s *server) run(ctx context.Context, k kind, dir string) (err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if s.address, err = freeAddress(); err != nil {
		return err
	}
	if s.child, err = k.start(ctx, dir, s.address); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.child.Await(ctx, func() error { return k.ready(ctx, dir, s.address) }); err != nil {
		return fmt.Errorf("%w; its log ends with: %s", err, logTail(dir))
	}
	return nil
}

// stop lets a server clean up: Postgres has memory that outlasts it.
func (s *server) stop() {
	if s.child == nil {
		return
	}
	if p, err := os.FindProcess(s.child.Pid()); err == nil {
		_ = p.Signal(os.Interrupt) // it may be dead already
	}
	select {
	case <-s.child.Dead():
	case <-time.After(patience):
	}
	s.child.Kill()
}

// freeAddress is one that nobody listens on for the time being.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// answers asks a server something that it answers with want.
func answers(ctx context.Context, address, question, want string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(question)); err != nil {
		return err
	}
	got := make([]byte, len(want))
	if _, err := conn.Read(got); err != nil {
		return err
	}
	if string(got) != want {
		return fmt.Errorf("it answered %q", got)
	}
	return nil
}

// logged starts a server with its output in a file next to its data.
func logged(cmd *exec.Cmd, dir string) (*testetcd.Child, error) {
	log, err := os.Create(logPath(dir))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	return testetcd.StartChild(cmd)
}

func logPath(dir string) string { return dir + ".log" }

func logTail(dir string) string {
	log, err := os.ReadFile(logPath(dir))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(log[max(0, len(log)-512):]))
}
