package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/etcdclaims/claims/internal/dbserver"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// A kind is a server that is not etcd, and how it is configured.
type kind struct {
	name  string
	start func(ctx context.Context, dir, host, port string) (*exec.Cmd, error)
	ready func(ctx context.Context, dir, address string) error
}

// Redis as it has to be run for locks that survive a crash of the machine, which is what
// etcd does; and as it is run for caches. Its log is not rewritten: that would fall into
// some measurements and not into others.
var (
	redisDurable = redisServer("redis-durable",
		"--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
	redisForgetful = redisServer("redis-forgetful", "--appendonly", "no")
)

func redisServer(name string, args ...string) kind {
	return kind{
		name: name,
		start: func(_ context.Context, dir, host, port string) (*exec.Cmd, error) {
			path, err := exec.LookPath("redis-server")
			if err != nil {
				return nil, errors.New("redis-server is not installed (Debian: redis-server)")
			}
			return exec.Command(path, append([]string{ //nolint:noctx // it ends with the stage
				"--bind", host, "--port", port, "--dir", dir, "--save", "", "--daemonize", "no",
			}, args...)...), nil
		},
		ready: func(ctx context.Context, _, address string) error {
			c := redisClient(address)
			return errors.Join(c.Ping(ctx).Err(), c.Close())
		},
	}
}

// redisConnections is what served redislock best, or nearly so, on two cores.
const redisConnections = 128

func redisClient(address string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: address, PoolSize: redisConnections,
		PoolTimeout: time.Minute, // thousands of goroutines wait in line for a connection
	})
}

// postgresUser owns the database, which asks for no password.
const postgresUser = "compare"

// postgres is one with its defaults, which are durable, but for the connections that it takes.
var postgres = kind{
	name: "postgres",
	start: func(ctx context.Context, dir, host, port string) (*exec.Cmd, error) {
		return dbserver.Postgres(ctx, dir, postgresUser,
			"-c", "listen_addresses="+host, "-p", port, "-c", "unix_socket_directories=", "-c", "max_connections=200")
	},
	ready: func(_ context.Context, dir, _ string) error { return dbserver.PostgresReady(dir) },
}

// A server runs for as long as the stage does: starting Postgres takes seconds.
type server struct {
	address string // host:port, of the loopback device as etcd's is
	child   *testetcd.Child
	err     error // why it does not run
}

// patience is how long a server may take to start, and to stop.
const patience = 30 * time.Second

// server returns the server of the kind, which is started at first use.
func (st *stage) server(ctx context.Context, k kind) (*server, error) {
	s := st.servers[k.name]
	if s == nil {
		s = new(server)
		st.servers[k.name] = s
		s.err = s.run(ctx, k, filepath.Join(st.data, k.name))
	}
	return s, s.err
}

func (s *server) run(ctx context.Context, k kind, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it returns at once
	if err != nil {
		return err
	}
	s.address = l.Addr().String() // free for the time being
	host, port, err := net.SplitHostPort(s.address)
	if err := errors.Join(err, l.Close()); err != nil {
		return err
	}
	cmd, err := k.start(ctx, dir, host, port)
	if err != nil {
		return fmt.Errorf("%w: %w", errAbsent, err)
	}
	log, err := os.Create(dir + ".log")
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if s.child, err = testetcd.StartChild(cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.child.Await(ctx, func() error { return k.ready(ctx, dir, s.address) }); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w; its log ends with: %s", err, text[max(0, len(text)-512):])
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
