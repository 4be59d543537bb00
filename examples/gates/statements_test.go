package gates

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/sqlguard"
)

type sqlVector struct {
	Dialect string   `json:"dialect"`
	Schema  []string `json:"schema"`
	// Raise admits a token. It returns the greatest fence admitted for the key: the
	// token's own if it was admitted, and a greater one if the token is stale.
	Raise string `json:"raise"`
	// Example is the token for which MySQL's statement, which has no arguments, is
	// written.
	Example *outcome `json:"example,omitempty"`
}

func TestStatements(t *testing.T) {
	token := fencing.Token{Key: "orders/42", Fence: 1234}
	var vectors []sqlVector
	for _, dialect := range []sqlguard.Dialect{sqlguard.Postgres, sqlguard.MySQL, sqlguard.SQLite} {
		guard, err := sqlguard.New(sqlguard.Config{Dialect: dialect})
		if err != nil {
			t.Fatal(err)
		}
		var recorded recorder
		db := sql.OpenDB(&recorded)
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		_ = guard.Admit(t.Context(), tx, token) // the recorder's answers are no fences
		_ = tx.Rollback()
		_ = db.Close()
		v := sqlVector{Dialect: dialect.String(), Schema: guard.Schema(), Raise: recorded.insert}
		if dialect == sqlguard.MySQL {
			v.Example = &outcome{Key: token.Key, Fence: "1234"}
		}
		vectors = append(vectors, v)
	}
	stored(t, "sql", vectors)
}

// recorder is a database that keeps the INSERT that it is asked for. It answers every
// query with a row of zeros, and refuses to begin a transaction in a transaction.
type recorder struct{ insert string }

func (r *recorder) Connect(context.Context) (driver.Conn, error) { return r, nil }
func (r *recorder) Driver() driver.Driver                        { return nil }
func (r *recorder) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (r *recorder) Begin() (driver.Tx, error)                    { return r, nil }
func (r *recorder) Close() error                                 { return nil }
func (r *recorder) Commit() error                                { return nil }
func (r *recorder) Rollback() error                              { return nil }

func (r *recorder) note(statement string) {
	if strings.HasPrefix(statement, "INSERT") {
		r.insert = statement
	}
}

func (r *recorder) ExecContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Result, error) {
	if statement == "BEGIN" {
		return nil, driver.ErrBadConn
	}
	r.note(statement)
	return driver.RowsAffected(0), nil
}

func (r *recorder) QueryContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Rows, error) {
	r.note(statement)
	return &zeros{left: 1}, nil
}

// zeros is a result of one row with two columns, of which Postgres' statement has only
// one: the recorder has recorded it by then.
type zeros struct{ left int }

func (z *zeros) Columns() []string { return []string{"fence", "other"} }
func (z *zeros) Close() error      { return nil }

func (z *zeros) Next(row []driver.Value) error {
	if z.left == 0 {
		return io.EOF
	}
	z.left--
	row[0], row[1] = int64(0), int64(0)
	return nil
}
