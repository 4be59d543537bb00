package databases_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/sqlguard"
)

// dieInTransaction names the variable that makes this program a process that
// opens a database of SQLite, writes, and kills itself before it commits.
const dieInTransaction = "SQLGUARD_DIE"

type death struct {
	DSN    string
	Token  fencing.Token
	Effect string
}

func (db *database) dieInTransaction(ctx context.Context, t fencing.Token, effect string) error {
	orders, err := json.Marshal(death{db.dsn, t, effect})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), dieInTransaction+"="+string(orders))
	var out bytes.Buffer
	cmd.Stderr = &out
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.Exited() {
		return fmt.Errorf("it did not die in its transaction: %v: %s", err, &out)
	}
	return ctx.Err()
}

// runAndDie returns only if it has failed.
func runAndDie() int {
	err := func() error {
		var d death
		if err := json.Unmarshal([]byte(os.Getenv(dieInTransaction)), &d); err != nil {
			return err
		}
		pool, err := sql.Open("sqlite", d.DSN)
		if err != nil {
			return err
		}
		db := &database{way: way{dialect: sqlguard.SQLite}, DB: pool}
		if db.guard, err = sqlguard.New(sqlguard.Config{Dialect: db.dialect}); err != nil {
			return err
		}
		ctx := context.Background()
		return db.transact(ctx, sql.LevelDefault, func(sql transaction) error {
			if err := db.admitAndInsert(ctx, sql, d.Token, d.Effect); err != nil {
				return err
			}
			self, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			return errors.Join(self.Kill(), errors.New("it lives on"))
		})
	}()
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// A server that crashes after the commit, and recovers, has forgotten nothing.
func TestServerCrash(t *testing.T) {
	for name, test := range map[string]struct {
		server  *server
		dialect sqlguard.Dialect
		open    func(dir string) (*sql.DB, error)
		table   string
		prepare string
	}{
		"postgres": {newPostgres(), sqlguard.Postgres, func(dir string) (*sql.DB, error) {
			return sql.Open("pgx", fmt.Sprintf("host=%s user=%s dbname=postgres sslmode=disable", dir, superuser))
		}, "public.marks", "SELECT 1"},
		"mariadb": {newMariaDB(), sqlguard.MySQL, func(dir string) (*sql.DB, error) {
			return openMySQL(mariaDSN(dir, "", ""), nil)
		}, "d.marks", "CREATE DATABASE d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guard, err := sqlguard.New(sqlguard.Config{Dialect: test.dialect, Table: test.table})
			if err != nil {
				t.Fatal(err)
			}
			dir := test.server.start(t)
			t.Cleanup(test.server.stop)
			pool := func() *sql.DB {
				db, err := test.open(dir)
				return opened(t, db, err)
			}
			db := pool()
			if _, err := db.ExecContext(t.Context(), test.prepare); err != nil {
				t.Fatal(err)
			}
			if err := guard.Migrate(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			if err := guard.Gate(db).Admit(t.Context(), fencing.Token{Key: "k", Fence: 2}); err != nil {
				t.Fatal(err)
			}
			test.server.crash(t)
			gate := guard.Gate(pool())
			var stale *fencing.StaleError
			if err := gate.Admit(t.Context(), fencing.Token{Key: "k", Fence: 1}); !errors.As(err, &stale) || stale.Newest != 2 {
				t.Error(err)
			}
			if err := gate.Admit(t.Context(), fencing.Token{Key: "k", Fence: 2}); err != nil {
				t.Error(err)
			}
		})
	}
}
