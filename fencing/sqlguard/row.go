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

// RowConfig says which rows guard themselves.
type RowConfig struct {
	// Dialect must be set.
	Dialect Dialect
	// Table has the rows: a name, or two with a dot between them.
	Table string
	// Key are the columns that name one row: a primary key, or a unique one
	// without NULL.
	Key []string
	// Fence is the column of the fence: BIGINT NOT NULL DEFAULT 0. Default:
	// "fence".
	Fence string
}

// RowGuard updates rows that carry their own fence: the row is its mark, and no
// table of marks is needed. It is safe for concurrent use.
//
// It guards the one row. Where a transaction changes others by the same token, or
// inserts or deletes rows, use Guard: a row that is not there remembers nothing.
type RowGuard struct {
	dialect Dialect
	table   string
	key     []string
	fence   string
}

// Key are the values of the columns RowConfig.Key, in the same order.
type Key []any

// NewRowGuard returns a RowGuard. It does no I/O, and fails only if the
// configuration is wrong.
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

// Update changes the row with the key and sets its fence to the token's, unless
// the row has a greater one, in one statement:
//
//	err := accounts.Update(ctx, tx, token, sqlguard.Key{"alice"}, "balance = balance - $1", 30)
//
//	UPDATE "accounts" SET "fence" = $2, balance = balance - $1
//	WHERE "id" = $3 AND "fence" <= $2
//
// set is SQL of the program's own, never of a user's, with the arguments that it
// has placeholders for: in Postgres from $1 on, else ? without numbers.
//
// The error is a *fencing.StaleError if the row has a greater fence, matches
// sql.ErrNoRows if there is no such row, or is the driver's, wrapped. The reason
// takes a second statement. After any error roll back: see the package's comment,
// of which all else applies, too.
func (g *RowGuard) Update(ctx context.Context, tx Tx, t fencing.Token, key Key, set string, args ...any) error {
	return g.update(ctx, sqlRunner{tx}, t, key, set, args)
}

func (g *RowGuard) update(ctx context.Context, r runner, t fencing.Token, key Key, set string, args []any) error {
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

// statement has the fence first, so that nothing in set can end the list before
// it. The line break ends a comment in set.
func (g *RowGuard) statement(t fencing.Token, key Key, set string, args []any) (string, []any) {
	n := len(args) + 1
	if g.dialect == Postgres { // in which an argument can stand in two places
		where := g.where(n + 1)
		return fmt.Sprintf("UPDATE %s SET %s = $%d, %s\nWHERE %s AND %[2]s <= $%[3]d", g.table, g.fence, n, set, where),
			slices.Concat(args, []any{t.Fence}, key)
	}
	fence := "?"
	if g.dialect == MySQL { // for matched to read; with the column in it, it is evaluated for each row
		fence = "LAST_INSERT_ID(GREATEST(" + g.fence + ", ?))"
	}
	return fmt.Sprintf("UPDATE %s SET %s = %s, %s\nWHERE %s AND %[2]s <= ?", g.table, g.fence, fence, set, g.where(0)),
		slices.Concat([]any{t.Fence}, args, key, []any{t.Fence})
}

// where compares the key's columns with arguments from the nth on.
func (g *RowGuard) where(n int) string {
	terms := make([]string, len(g.key))
	for i, column := range g.key {
		terms[i] = column + " = " + g.dialect.placeholder(n+i)
	}
	return strings.Join(terms, " AND ")
}

// matched returns how many rows the statement has found. MySQL, unless the client
// asks for more, counts those that it has changed, and an owner may set what is
// there already: then the reply carries the fence if any row was found.
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

// why looks at the row that was not updated. It counts, so that there is a result
// in any case. MySQL would show what the transaction's snapshot has, if it were
// not asked to lock.
func (g *RowGuard) why(ctx context.Context, r runner, t fencing.Token, key Key) error {
	query := fmt.Sprintf("SELECT COUNT(*), COALESCE(MAX(%s), 0) FROM %s WHERE %s", g.fence, g.table, g.where(1))
	if g.dialect == MySQL {
		query += " FOR UPDATE"
	}
	var rows, newest int64
	if err := r.row(ctx, []any{&rows, &newest}, query, key...); err != nil {
		return fmt.Errorf("sqlguard: looking why table %s was not updated for %v: %w", g.table, t, err)
	}
	switch {
	case rows == 0:
		return fmt.Errorf("sqlguard: table %s has no row with the key %v: %w", g.table, key, sql.ErrNoRows)
	case rows > 1:
		return g.ambiguous(rows)
	case newest > t.Fence:
		return &fencing.StaleError{Token: t, Newest: newest}
	}
	return fmt.Errorf("sqlguard: table %s was not updated for %v, though its row now has fence %d: if that was not NULL before (the column must be NOT NULL), run the transaction again", g.table, t, newest)
}

func (g *RowGuard) ambiguous(rows int64) error {
	return fmt.Errorf("sqlguard: %d rows of table %s have one key: roll back, and name in RowConfig.Key what is unique", rows, g.table)
}
