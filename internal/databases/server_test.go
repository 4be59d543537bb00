package databases_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/dbserver"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// patience is for a server to start or to stop, and for whatever must happen.
const patience = 30 * time.Second

// A server is a process with a directory of its own, in which it has its data and
// its socket.
type server struct {
	command func(dir string) (*exec.Cmd, error)
	ready   func(dir string) error

	mu     sync.Mutex
	dir    string
	child  *testetcd.Child
	absent error
}

// The servers that tests share, each with a database of its own in it. They have
// their defaults, which are durable, but for the connections that they take.
var (
	postgres = newPostgres()
	mariadb  = newMariaDB()
)

const superuser = "test"

func newPostgres() *server {
	return &server{
		command: func(dir string) (*exec.Cmd, error) {
			return dbserver.Postgres(context.Background(), dir, superuser,
				"-c", "listen_addresses=", "-c", "unix_socket_directories="+dir, "-c", "max_connections=300")
		},
		ready: dbserver.PostgresReady,
	}
}

func newMariaDB() *server {
	return &server{
		command: func(dir string) (*exec.Cmd, error) {
			return dbserver.MariaDB(dir, "--max-connections=300", "--innodb-log-file-size=32M")
		},
		ready: func(dir string) error {
			db, err := openMySQL(mariaDSN(dir, "", ""), nil)
			if err != nil {
				return err
			}
			return errors.Join(db.Ping(), db.Close())
		},
	}
}

// start starts the server, unless it runs, and returns its directory.
func (s *server) start(tb testing.TB) string {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child == nil && s.absent == nil {
		err := s.run()
		if errors.Is(err, dbserver.ErrAbsent) {
			s.absent = err
		} else if err != nil {
			tb.Fatal(err)
		}
	}
	if s.absent != nil {
		tb.Skip(s.absent)
	}
	return s.dir
}

func (s *server) run() (err error) {
	if s.dir == "" {
		// Not in the directory of a test, which other users cannot enter.
		if s.dir, err = os.MkdirTemp("", "db"); err != nil {
			return err
		}
	}
	cmd, err := s.command(s.dir)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(os.TempDir(), filepath.Base(s.dir)+".log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd.Stdout, cmd.Stderr = log, log
	if s.child, err = testetcd.StartChild(cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.child.Await(ctx, func() error { return s.ready(s.dir) }); err != nil {
		text, _ := os.ReadFile(log.Name()) // it is for people
		return fmt.Errorf("%w: %s", err, text)
	}
	return nil
}

// crash ends the server without its writing anything more, and starts it again.
// Of Postgres all processes end so; SIGKILL would leave some for a while.
func (s *server) crash(t *testing.T) {
	t.Helper()
	s.signal(syscall.SIGQUIT)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

// signal ends the process by the signal, or by SIGKILL if that takes too long.
func (s *server) signal(sig os.Signal) {
	if p, err := os.FindProcess(s.child.Pid()); err == nil {
		_ = p.Signal(sig) // it may be dead already
	}
	select {
	case <-s.child.Dead():
	case <-time.After(patience):
	}
	s.child.Kill()
}

// stop lets the server clean up: Postgres has memory that outlasts it.
func (s *server) stop() {
	if s.child != nil {
		sig := os.Signal(syscall.SIGTERM) // MariaDB ignores the other
		if s == postgres {
			sig = os.Interrupt // as SIGTERM, but it waits for no client
		}
		s.signal(sig)
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir) // what is left over is for the system to tidy up
		_ = os.Remove(filepath.Join(os.TempDir(), filepath.Base(s.dir)+".log"))
	}
}
