package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/examples/demoproc"
	"github.com/etcdclaims/claims/fencing/sqlguard"
)

//go:embed schema.sql
var schema string

const (
	accounts = 6
	opening  = 10_000
)

// startEtcd starts an etcd on which the service may do what docs/permissions.md lists for
// claims and their notes, and nothing else.
func startEtcd(ctx context.Context, dir string) (*demoetcd.Secured, error) {
	etcd, err := demoetcd.StartSecured(dir)
	if err != nil {
		return nil, err
	}
	if _, err := etcd.Certificate(etcdUser); err != nil {
		return etcd, err
	}
	grants := []demoetcd.Grant{{Prefix: "/etcdclaims/epoch"}, {Prefix: "/etcdclaims/wait/"}}
	for _, subtree := range []string{"own/", "note/", "session/", "void/"} {
		grants = append(grants, demoetcd.Grant{Prefix: "/etcdclaims/" + subtree, Write: true})
	}
	return etcd, etcd.EnableAuth(ctx, etcdUser, grants...)
}

// database is a Postgres with the tables of the service.
type database struct {
	dir   string
	child *demoproc.Child
	pool  *pgxpool.Pool
}

func (d *database) dsn() string { return "host=" + d.dir + " user=billing dbname=postgres" }

func (d *database) start(ctx context.Context) error {
	// A frozen process must not keep its locks.
	cmd, err := demoproc.Postgres(ctx, d.dir, "billing", "-c", "listen_addresses=", "-c", "unix_socket_directories="+d.dir,
		"-c", "idle_in_transaction_session_timeout=2s")
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd.Stdout, cmd.Stderr = log, log
	if d.child, err = demoproc.StartChild(cmd); err != nil {
		return err
	}
	return d.child.Await(ctx, func() error { return demoproc.PostgresReady(d.dir) })
}

// crash ends all processes of Postgres at once.
func (d *database) crash() {
	if p, err := os.FindProcess(d.child.Pid()); err == nil {
		_ = p.Signal(syscall.SIGQUIT) // it may be dead already
	}
	<-d.child.Dead()
}

// migrate makes the tables of the service, its accounts, and the table of the guard.
func (d *database) migrate(ctx context.Context) error {
	guard, err := sqlguard.New(sqlguard.Config{Dialect: sqlguard.Postgres})
	if err != nil {
		return err
	}
	if d.pool, err = pgxpool.New(ctx, d.dsn()); err != nil {
		return err
	}
	open := fmt.Sprintf("INSERT INTO accounts SELECT 'a' || n, %d FROM generate_series(1, %d) n", opening, accounts)
	for _, statement := range append([]string{schema, open}, guard.Schema()...) {
		if _, err := d.pool.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
