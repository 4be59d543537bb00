package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/internal/compare/load"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// postgres is one with its defaults, which are durable, but for the connections
// that it takes.
var postgres = kind{
	name: "postgres",
	start: func(ctx context.Context, dir, address string) (*testetcd.Child, error) {
		bin, ok := postgresBin()
		if !ok {
			return nil, absent("postgres is not installed (Debian: postgresql)")
		}
		as, err := unprivileged(dir)
		if err != nil {
			return nil, absent("postgres does not run as root: %v", err)
		}
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		data := filepath.Join(dir, "data")
		initdb := as(exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", load.PostgresUser, "-A", "trust", "-E", "UTF8", "--locale", "C", "--no-sync"))
		initdb.Dir = dir
		if out, err := initdb.CombinedOutput(); err != nil {
			return nil, absent("initdb: %v: %s", err, out) // as where the directory is closed to the other user
		}
		return logged(as(exec.Command(filepath.Join(bin, "postgres"), "-D", data,
			"-c", "listen_addresses="+host, "-p", port, "-c", "unix_socket_directories=", "-c", "max_connections=200")), dir)
	},
	// As soon as it listens it refuses clients, since it is starting. When it takes
	// them it says so in this file, which is where pg_ctl looks too.
	ready: func(_ context.Context, dir, _ string) error {
		status, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
		if err == nil && !strings.Contains(string(status), "\nready") {
			err = errors.New("it is starting")
		}
		return err
	},
}

// postgresBin returns where the programs of Postgres are: Debian puts them in no
// PATH, since it can have several versions. The youngest is taken.
func postgresBin() (string, bool) {
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), true
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(found) == 0 {
		return "", false
	}
	version := func(path string) int {
		v, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0 for what is no number
		return v
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), true
}
