package databases_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/sqlguard"
	"github.com/etcdclaims/claims/internal/dbserver"
)

// pooler is a PgBouncer, which gives each transaction any of three connections.
var pooler = &server{
	command: func(dir string) (*exec.Cmd, error) { return dbserver.PgBouncer(dir, postgres.dir, superuser) },
	ready: func(dir string) error {
		cfg, err := pgx.ParseConfig(fmt.Sprintf("host=%s user=%s dbname=postgres sslmode=disable", dir, superuser))
		if err != nil {
			return err
		}
		cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		db := stdlib.OpenDB(*cfg)
		return errors.Join(db.Ping(), db.Close())
	},
}

// pooled opens a database through the pooler. The table has its schema, because connections of others have another search_path.
func pooled(
	t *testing.T, mode pgx.QueryExecMode, dial func(ctx context.Context, network, address string) (net.Conn, error),
) (direct, pool *sql.DB, g *sqlguard.Guard, schema string) {
	t.Helper()
	cfg, _ := pgConfig(t, postgres.start(t))
	schema = cfg.RuntimeParams["search_path"]
	direct = opened(t, stdlib.OpenDB(*cfg), nil)
	through, err := pgx.ParseConfig(fmt.Sprintf("host=%s user=%s dbname=postgres sslmode=disable", pooler.start(t), superuser))
	if err != nil {
		t.Fatal(err)
	}
	through.DefaultQueryExecMode = mode
	if dial != nil {
		through.DialFunc = dial
	}
	pool = opened(t, stdlib.OpenDB(*through), nil)
	if g, err = sqlguard.New(sqlguard.Config{Dialect: sqlguard.Postgres, Table: schema + ".marks"}); err != nil {
		t.Fatal(err)
	}
	if err := g.Migrate(t.Context(), direct); err != nil {
		t.Fatal(err)
	}
	if _, err := direct.ExecContext(t.Context(), "CREATE TABLE effects (id bigserial PRIMARY KEY, fence bigint NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return direct, pool, g, schema
}

// Through a pooler that gives each transaction another connection no former owner writes, whether or not the driver
// prepares its statements. Statements that it keeps for a connection can fail, and are no stale token.
func TestPooler(t *testing.T) {
	for name, mode := range map[string]pgx.QueryExecMode{
		"simple": pgx.QueryExecModeSimpleProtocol, "exec": pgx.QueryExecModeExec, "cached": pgx.QueryExecModeCacheStatement,
	} {
		t.Run(name, func(t *testing.T) {
			direct, pool, g, schema := pooled(t, mode, nil)
			var newest atomic.Int64
			var wrote atomic.Int64
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 25 {
						err := pooledWrite(t.Context(), pool, g, schema, newest.Add(1))
						switch _, refused := fencing.RefusalOf(err); {
						case err == nil:
							wrote.Add(1)
						case !refused && !(mode == pgx.QueryExecModeCacheStatement && strings.Contains(err.Error(), "prepared statement")):
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			rows, err := direct.QueryContext(t.Context(), "SELECT fence FROM effects ORDER BY id")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = rows.Close() }()
			var last, n int64
			for rows.Next() {
				var fence int64
				if err := rows.Scan(&fence); err != nil || fence < last {
					t.Fatalf("fence %d came after %d, %v", fence, last, err)
				}
				last, n = fence, n+1
			}
			if rows.Err() != nil || n != wrote.Load() || n == 0 {
				t.Errorf("%d effects of %d transactions, %v", n, wrote.Load(), rows.Err())
			}
		})
	}
}

// pooledWrite admits a fence, and has an effect under it. A savepoint is set and undone in between.
func pooledWrite(ctx context.Context, pool *sql.DB, g *sqlguard.Guard, schema string, fence int64) error {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := g.Admit(ctx, tx, fencing.Token{Key: "k", Fence: fence}); err != nil {
		return err
	}
	insert := fmt.Sprintf("INSERT INTO %s.effects (fence) VALUES (%d)", schema, fence)
	for _, query := range []string{"SAVEPOINT s", insert, "ROLLBACK TO SAVEPOINT s", insert} {
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// A commit without a reply through the pooler is unknown, whether it was carried out or not.
func TestPoolerCommitWithoutReply(t *testing.T) {
	for _, carryOut := range []bool{false, true} {
		var cut atomic.Bool
		direct, pool, g, _ := pooled(t, pgx.QueryExecModeSimpleProtocol, func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return &cutter{Conn: conn, carryOut: carryOut, cut: &cut}, err
		})
		gate := g.Gate(pool)
		if err := gate.Admit(t.Context(), fencing.Token{Key: "k", Fence: 2}); !errors.Is(err, fencing.ErrUnknown) ||
			errors.Is(err, fencing.ErrStale) {
			t.Fatal(err)
		}
		if err := g.Gate(direct).Admit(t.Context(), fencing.Token{Key: "k", Fence: 1}); stale(err, 2) != carryOut {
			t.Errorf("carried out: %v; %v", carryOut, err)
		}
		if err := gate.Admit(t.Context(), fencing.Token{Key: "k", Fence: 2}); err != nil {
			t.Error(err)
		}
	}
}
