package sqlguard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// Tx is a transaction of database/sql: a *sql.Tx, a type that embeds or wraps
// one, or a *sql.Conn on which BEGIN was run. The package cannot see whether it
// was: without a transaction, nothing is guarded. A *sql.DB also has these
// methods, and is refused.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// PgxTx is a transaction of pgx. A pgx.Tx has these methods; a connection or a
// pool lacks some of them. The type parameters are inferred: T is
// pgconn.CommandTag, R is pgx.Row.
type PgxTx[T pgxTag, R pgxRow] interface {
	Exec(ctx context.Context, sql string, args ...any) (T, error)
	QueryRow(ctx context.Context, sql string, args ...any) R
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

type (
	pgxTag interface{ RowsAffected() int64 }
	pgxRow interface{ Scan(dest ...any) error }
)

// runner runs single statements in a transaction.
type runner interface {
	check(d Dialect) error
	exec(ctx context.Context, query string, args ...any) (sql.Result, error)
	row(ctx context.Context, dest []any, query string, args ...any) error
}

type sqlRunner struct{ tx Tx }

func (r sqlRunner) check(Dialect) error {
	// Only a pool, and a type that embeds one, has Stats.
	if _, pool := r.tx.(interface{ Stats() sql.DBStats }); pool {
		return errors.New("sqlguard: a *sql.DB is a connection pool, not a transaction: begin one, and make the guarded writes with it")
	}
	return nil
}

func (r sqlRunner) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return r.tx.ExecContext(ctx, query, args...)
}

// row scans one row. Scan reads to the end of the result, so that no error after the
// row is lost.
func (r sqlRunner) row(ctx context.Context, dest []any, query string, args ...any) error {
	return r.tx.QueryRowContext(ctx, query, args...).Scan(dest...)
}

type pgxRunner[T pgxTag, R pgxRow] struct{ tx PgxTx[T, R] }

func (r pgxRunner[T, R]) check(d Dialect) error {
	if d != Postgres {
		return fmt.Errorf("sqlguard: the guard is for %v, the transaction is of Postgres: set Config.Dialect to Postgres", d)
	}
	return nil
}

func (r pgxRunner[T, R]) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := r.tx.Exec(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(tag.RowsAffected()), nil
}

func (r pgxRunner[T, R]) row(ctx context.Context, dest []any, query string, args ...any) error {
	return r.tx.QueryRow(ctx, query, args...).Scan(dest...)
}
