package conformance_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/dbserver"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// serverDir returns a directory with a path that is short enough for sockets, which
// other users may enter.
func serverDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "conf") //nolint:usetesting // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// serve runs a server until the test ends, and waits until it is ready.
func serve(t *testing.T, cmd *exec.Cmd, ready func() error) {
	t.Helper()
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	child, err := testetcd.StartChild(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(child.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := child.Await(ctx, ready); err != nil {
		child.Kill() // so that the log is complete
		t.Fatalf("%v: %s", err, &log)
	}
}

// startRedis returns the socket of a Redis with nothing in it.
func startRedis(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed (Debian: redis-server)")
	}
	dir := serverDir(t)
	socket := filepath.Join(dir, "socket")
	serve(t, exec.Command(path, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no"), func() error {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	return socket
}

// startPostgres returns the address of a Postgres with nothing in it.
func startPostgres(t *testing.T) string {
	t.Helper()
	dir := serverDir(t)
	cmd, err := dbserver.Postgres(t.Context(), dir, "conformance", "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	if errors.Is(err, dbserver.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	serve(t, cmd, func() error { return dbserver.PostgresReady(dir) })
	return "host=" + dir + " user=conformance dbname=postgres"
}
