package conformance_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

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
func serve(t *testing.T, cmd *exec.Cmd, ready func() bool) {
	t.Helper()
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	child, err := testetcd.StartChild(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(child.Kill)
	for deadline := time.Now().Add(30 * time.Second); !ready(); time.Sleep(20 * time.Millisecond) {
		select {
		case <-child.Dead():
			t.Fatalf("%s: %v: %s", cmd.Path, child.Err(), &log)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready", cmd.Path)
		}
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
	socket := filepath.Join(dir, "s")
	serve(t, exec.Command(path, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no"), func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return socket
}

// startPostgres returns the address of a Postgres with nothing in it.
func startPostgres(t *testing.T) string {
	t.Helper()
	bin, ok := postgresBin()
	if !ok {
		t.Skip("postgres is not installed (Debian: postgresql)")
	}
	dir := serverDir(t)
	as := unprivileged(t, dir)
	data := filepath.Join(dir, "data")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	initdb := as(exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "conformance", "-A", "trust", "-E", "UTF8", "--locale", "C", "--no-sync"))
	initdb.Dir = dir
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Skipf("initdb: %v: %s", err, out) // as where the directory is closed to the other user
	}
	serve(t, as(exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")), func() bool {
		status, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
		return err == nil && strings.Contains(string(status), "\nready")
	})
	return "host=" + dir + " user=conformance dbname=postgres"
}

// postgresBin returns where the programs of the youngest Postgres are: Debian puts
// them in no PATH.
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

// unprivileged returns what makes a command run as another user, to whom the
// directory is given: Postgres does not run as root.
func unprivileged(t *testing.T, dir string) func(*exec.Cmd) *exec.Cmd {
	t.Helper()
	if os.Getuid() != 0 {
		return func(cmd *exec.Cmd) *exec.Cmd { return cmd }
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		t.Skipf("postgres does not run as root: %v", err)
	}
	uid, _ := strconv.ParseUint(who.Uid, 10, 32)
	gid, _ := strconv.ParseUint(who.Gid, 10, 32)
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		t.Skipf("postgres does not run as root: %v", err)
	}
	return func(cmd *exec.Cmd) *exec.Cmd {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		return cmd
	}
}
