package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/fencing"
)

// RowConfig configures a RowGuard.
type RowConfig struct {
	// Dialect is the database's dialect. It is required.
	Dialect Dialect
	// Table is the table of the rows. The name may have two parts, separated by a
	// dot.
	Table string
	// Key is the columns that identify one row: the primary key, or a unique key
	// without NULL.
	Key []string
	// Fence is the column of the fence, of type BIGINT NOT NULL DEFAULT 0.
	// Default: "fence".
	Fence string
}

// RowGuard updates rows that store their own fence. The row is its own mark, so
// there is no table of marks. RowGuard is safe for concurrent use.
//
// It guards only the row that it updates. Use Guard if a transaction changes
// other rows under the same token, or inserts or deletes rows: an absent row
// remembers nothing.
type RowGuard struct {
	dialect Dialect
	table   string
	key     []string
	fence   string
}

// NewRowGuard returns a RowGuard. It does no I/O. It returns an error only if the
// configuration is invalid.
func NewRowGuard(cfg RowConfig) (*RowGuard, error) {
	if err := cfg.Dialect.validate(); err != nil {
		return nil, err
	}
	if len(cfg.Key) == 0 {
		return nil, errors.New("sqlguard: RowConfig.Key is empty: name the columns of the primary key")
	}
	if cfg.Fence == "" {
		cfg.Fence = "fence"
	}
	g := &RowGuard{dialect: cfg.Dialect}
	var err error
	if g.table, err = cfg.Dialect.quote("Table", cfg.Table, 2); err != nil {
		return nil, err
	}
	if g.fence, err = cfg.Dialect.quote("Fence", cfg.Fence, 1); err != nil {
		return nil, err
	}
	for _, column := range cfg.Key {
		quoted, err := cfg.Dialect.quote("Key", column, 1)
		if err != nil {
			return nil, err
		}
		g.key = append(g.key, quoted)
	}
	return g, nil
}

// Update changes the row with the key and sets its fence to the token's, in one
// statement, unless the row has a greater fence:
//
//	err := accounts.Update(ctx, tx, token, []any{"alice"}, "balance = balance - $1", 30)
//
//	UPDATE "accounts" SET "fence" = $2, balance = balance - $1
//	WHERE "id" = $3 AND "fence" <= $2
//
// key is the values of the columns in RowConfig.Key, in the same order.
//
// set is SQL written by the programmer; never build it from user input. args are
// the arguments of its placeholders: $1 and so on in Postgres, otherwise ?
// without numbers.
//
// The error is a *fencing.StaleError if the row has a greater fence. It matches
// sql.ErrNoRows if there is no such row. Any other error is the driver's,
// wrapped. To distinguish these takes a second statement. Roll back after any
// error. The rest of the package documentation applies too.
func (g *RowGuard) Update(ctx context.Context, tx Tx, t fencing.Token, key []any, set string, args ...any) error {
	return g.update(ctx, sqlRunner{tx}, t, key, set, args)
}

func (g *RowGuard) update(ctx context.Context, r runner, t fencing.Token, key []any, set string, args []any) error {
	if err := t.Validate(); err != nil {
		return err
	}
	if err := r.check(g.dialect); err != nil {
		return err
	}
	if len(key) != len(g.key) {
		return fmt.Errorf("sqlguard: the key of table %s has %d values, want one for each of %s", g.table, len(key), strings.Join(g.key, ", "))
	}
	query, all := g.statement(t, key, set, args)
	result, err := r.exec(ctx, query, all...)
	var rows int64
	if err == nil {
		rows, err = g.matched(result, t)
	}
	switch {
	case err != nil:
		return fmt.Errorf("sqlguard: updating table %s for %v: %w", g.table, t, err)
	case rows == 0:
		return g.why(ctx, r, t, key)
	case rows > 1:
		return g.ambiguous(rows)
	}
	return nil
}

// statement puts the fence first, so that nothing in set can end the list before
// it. The line break ends a comment in set.
func (g *RowGuard) statement(t fencing.Token, key []any, set string, args []any) (string, []any) {
	n := len(args) + 1
	if g.dialect == Postgres { // whose arguments can be used twice
		where := g.where(n + 1)
		return fmt.Sprintf("UPDATE %s SET %s = $%d, %s\nWHERE %s AND %[2]s <= $%[3]d", g.table, g.fence, n, set, where),
			slices.Concat(args, []any{t.Fence}, key)
	}
	fence := "?"
	if g.dialect == MySQL { // for matched to read; naming the column makes MySQL evaluate it for each row
		fence = "LAST_INSERT_ID(GREATEST(" + g.fence + ", ?))"
	}
	return fmt.Sprintf("UPDATE %s SET %s = %s, %s\nWHERE %s AND %[2]s <= ?", g.table, g.fence, fence, set, g.where(0)),
		slices.Concat([]any{t.Fence}, args, key, []any{t.Fence})
}

// where compares the key columns with the arguments from the nth on.
func (g *RowGuard) where(n int) string {
	terms := make([]string, len(g.key))
	for i, column := range g.key {
		terms[i] = column + " = " + g.dialect.placeholder(n+i)
	}
	return strings.Join(terms, " AND ")
}

// matched returns how many rows the statement found. By default MySQL counts only
// rows that it changed, and an owner may write the values that are already there.
// The reply then carries the fence if a row was found.
func (g *RowGuard) matched(result sql.Result, t fencing.Token) (int64, error) {
	rows, err := result.RowsAffected()
	if err != nil || rows > 0 || g.dialect != MySQL {
		return rows, err
	}
	id, err := result.LastInsertId()
	if err == nil && id == t.Fence {
		rows = 1
	}
	return rows, err
}

// why returns why no row was updated. It counts rows, so that there is always a
// result. In MySQL it locks the row, because an ordinary read returns the
// transaction's snapshot.
func (g *RowGuard) why(ctx context.Context, r runner, t fencing.Token, key []any) error {
	query := fmt.Sprintf("SELECT COUNT(*), COALESCE(MAX(%s), 0) FROM %s WHERE %s", g.fence, g.table, g.where(1))
	if g.dialect == MySQL {
		query += " FOR UPDATE"
	}
	var rows, newest int64
	if err := r.row(ctx, []any{&rows, &newest}, query, key...); err != nil {
		return fmt.Errorf("sqlguard: finding out why table %s was not updated for %v: %w", g.table, t, err)
	}
	switch {
	case rows == 0:
		return fmt.Errorf("sqlguard: table %s has no row with the key %v: %w", g.table, key, sql.ErrNoRows)
	case rows > 1:
		return g.ambiguous(rows)
	case newest > t.Fence:
		return &fencing.StaleError{Token: t, Newest: newest}
	}
	return fmt.Errorf("sqlguard: table %s was not updated for %v, though its row now has fence %d: "+
		"run the transaction again; the fence column must be NOT NULL", g.table, t, newest)
}

func (g *RowGuard) ambiguous(rows int64) error {
	return fmt.Errorf("sqlguard: %d rows of table %s have the same key: roll back, and set RowConfig.Key to a unique key", rows, g.table)
}
