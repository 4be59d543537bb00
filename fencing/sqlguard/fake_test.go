package sqlguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/etcdclaims/claims/fencing/sqlguard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a driver that answers every statement alike, and writes down what it is
// asked for, but for a BEGIN that SQLite refuses. Real databases are tested in internal/databases.
type fake struct {
	log      []string
	args     []any
	row      []driver.Value // what a query returns; nil for no row
	snapshot bool           // the transaction keeps one to its end
	inserted int64          // what LastInsertId says
	affected int64
	err      error // of a statement
	commit   error
	over     bool // SQLite has ended the transaction
}

func (f *fake) open(t *testing.T) *sql.DB {
	t.Helper()
	db := sql.OpenDB(f)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (f *fake) begin(t *testing.T) *sql.Tx {
	t.Helper()
	tx, err := f.open(t).Begin()
	if err != nil {
		t.Fatal(err)
	}
	f.log = nil
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (f *fake) say(what string, args []driver.NamedValue) {
	f.log = append(f.log, what)
	for _, arg := range args {
		f.args = append(f.args, arg.Value)
	}
}

func (f *fake) Connect(context.Context) (driver.Conn, error) { return f, nil }
func (f *fake) Driver() driver.Driver                        { return nil }
func (f *fake) Close() error                                 { return nil }
func (f *fake) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (f *fake) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }
func (f *fake) BeginTx(_ context.Context, o driver.TxOptions) (driver.Tx, error) {
	f.say("BEGIN "+sql.IsolationLevel(o.Isolation).String(), nil)
	return fakeTx{f}, nil
}

func (f *fake) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if query == "BEGIN" && !f.over {
		return nil, errors.New("cannot start a transaction within a transaction")
	}
	f.say(query, args)
	return fakeResult{f}, f.err
}

func (f *fake) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	f.say(query, args)
	row := f.row
	if strings.Contains(query, "transaction_isolation") && row != nil {
		row = append(slices.Clone(row), f.snapshot)
	}
	return &fakeRows{row: row}, f.err
}

type fakeResult struct{ f *fake }

func (r fakeResult) LastInsertId() (int64, error) { return r.f.inserted, nil }
func (r fakeResult) RowsAffected() (int64, error) { return r.f.affected, nil }

type fakeTx struct{ f *fake }

func (t fakeTx) Commit() error   { t.f.say("COMMIT", nil); return t.f.commit }
func (t fakeTx) Rollback() error { t.f.say("ROLLBACK", nil); return nil }

type fakeRows struct {
	row  []driver.Value
	done bool
}

func (r *fakeRows) Columns() []string { return make([]string, len(r.row)) }
func (r *fakeRows) Close() error      { return nil }
func (r *fakeRows) Next(dest []driver.Value) error {
	if r.done || r.row == nil {
		return io.EOF
	}
	r.done = true
	copy(dest, r.row)
	return nil
}

func newGuard(t *testing.T, cfg sqlguard.Config) *sqlguard.Guard {
	t.Helper()
	g, err := sqlguard.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}
