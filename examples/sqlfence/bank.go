package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/sqlguard"
)

// opening is what each account has at first.
const opening = 100

// A bank is a database with accounts.
type bank struct {
	db    *sql.DB
	guard *sqlguard.Guard
}

func openBank(dsn string) (*bank, error) {
	driver, cfg := "sqlite", sqlguard.Config{Dialect: sqlguard.SQLite, Table: "sqlfence_fences"}
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		driver, cfg.Dialect = "pgx", sqlguard.Postgres
	} else {
		dsn = "file:" + dsn + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate"
	}
	guard, err := sqlguard.New(cfg)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open(driver, dsn)
	return &bank{db, guard}, err
}

// transfer is the write of a worker that has read the balances before. With a
// guard it admits the token first, in the same transaction.
func (b *bank) transfer(ctx context.Context, had map[string]int, j job, token fencing.Token) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if j.Guarded {
		if err := b.guard.Admit(ctx, tx, token); err != nil {
			return err
		}
	}
	for id, balance := range map[string]int{j.From: had[j.From] - j.Amount, j.To: had[j.To] + j.Amount} {
		if _, err := tx.ExecContext(ctx, "UPDATE sqlfence_accounts SET balance = $1 WHERE id = $2", balance, id); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (b *bank) balances(ctx context.Context) (map[string]int, error) {
	rows, err := b.db.QueryContext(ctx, "SELECT id, balance FROM sqlfence_accounts")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	all := map[string]int{}
	for rows.Next() {
		var id string
		var balance int
		if err := rows.Scan(&id, &balance); err != nil {
			return nil, err
		}
		all[id] = balance
	}
	return all, rows.Err()
}

// reset opens the accounts anew.
func (b *bank) reset(ctx context.Context) error {
	return errors.Join(b.guard.Migrate(ctx, b.db), b.exec(ctx,
		"CREATE TABLE IF NOT EXISTS sqlfence_accounts (id text PRIMARY KEY, balance integer NOT NULL)",
		"DELETE FROM sqlfence_accounts",
		fmt.Sprintf("INSERT INTO sqlfence_accounts VALUES ('alice', %[1]d), ('bob', %[1]d), ('carol', %[1]d)", opening)))
}

// removeAll leaves nothing behind in a database that is not the program's own.
func (b *bank) removeAll(ctx context.Context) error {
	return b.exec(ctx, "DROP TABLE IF EXISTS sqlfence_accounts", "DROP TABLE IF EXISTS sqlfence_fences")
}

func (b *bank) exec(ctx context.Context, statements ...string) error {
	var errs []error
	for _, s := range statements {
		_, err := b.db.ExecContext(ctx, s)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
