package dbserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Postgres returns the command that serves a cluster in the directory, which is
// made there if there is none, with a superuser of that name. The arguments are
// added: without any it has its defaults, which are durable.
func Postgres(ctx context.Context, dir, superuser string, args ...string) (*exec.Cmd, error) {
	bin, ok := postgresBin()
	if !ok {
		return nil, fmt.Errorf("postgres %w (Debian: postgresql)", ErrAbsent)
	}
	as, err := unprivileged(dir)
	if err != nil {
		return nil, fmt.Errorf("postgres does not run as root: %w", err)
	}
	data := filepath.Join(dir, "data")
	if _, err := os.Stat(data); errors.Is(err, os.ErrNotExist) {
		initdb := as(exec.CommandContext(ctx, filepath.Join(bin, "initdb"),
			"-D", data, "-U", superuser, "-A", "trust", "-E", "UTF8", "--locale", "C", "--no-sync"))
		initdb.Dir = dir
		if out, err := initdb.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("initdb: %w: %s", err, out) // as where the directory is closed to the other user
		}
	}
	cmd := as(exec.Command(filepath.Join(bin, "postgres"), append([]string{"-D", data}, args...)...))
	cmd.Dir = dir
	return cmd, nil
}

// PostgresReplica returns the command that serves a streaming replica, of that name, of the Postgres
// whose socket is in the directory primary. Its data is copied from there if it has none.
func PostgresReplica(ctx context.Context, dir, primary, superuser, name string, args ...string) (*exec.Cmd, error) {
	bin, ok := postgresBin()
	if !ok {
		return nil, fmt.Errorf("postgres %w (Debian: postgresql)", ErrAbsent)
	}
	backup := filepath.Join(bin, "pg_basebackup")
	if _, err := os.Stat(backup); err != nil {
		return nil, fmt.Errorf("pg_basebackup %w (Debian: postgresql-client)", ErrAbsent)
	}
	as, err := unprivileged(dir)
	if err != nil {
		return nil, fmt.Errorf("postgres does not run as root: %w", err)
	}
	data := filepath.Join(dir, "data")
	if _, err := os.Stat(data); errors.Is(err, os.ErrNotExist) {
		copying := as(exec.CommandContext(ctx, backup, "-D", data, "-R", "--checkpoint=fast", "--no-sync",
			"-d", fmt.Sprintf("host=%s user=%s application_name=%s", primary, superuser, name)))
		copying.Dir = dir
		if out, err := copying.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("pg_basebackup: %w: %s", err, out)
		}
	}
	cmd := as(exec.Command(filepath.Join(bin, "postgres"), append([]string{"-D", data}, args...)...))
	cmd.Dir = dir
	return cmd, nil
}

// PostgresReady returns nil once the server takes clients. As soon as it listens
// it refuses them, since it is starting. When it takes them it says so in a file,
// which is where pg_ctl looks too.
func PostgresReady(dir string) error {
	status, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err == nil && !strings.Contains(string(status), "\nready") {
		err = errors.New("it is starting")
	}
	return err
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
