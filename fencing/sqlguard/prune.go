package sqlguard

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
)

// pruneRows is how many marks one statement of Prune covers. Owners of these keys
// wait for it.
const pruneRows = 1000

// Prune deletes the marks that are older than the token, and returns their
// number.
//
// To get the token, acquire a claim on any key and release it. Prune is safe only
// once no older token can arrive. Before the call, wait until every process that
// was running when the claim was acquired has ended. Also wait until every
// request that was under way or queued at that time is gone. If etcd was restored
// in the meantime, acquire another claim and wait again.
//
// Fences of different keys are not comparable in general, and fences of different
// epochs never are. So Prune deletes a mark only if both its fence and its etcd
// revision are below the token's. All claims whose marks are in the table must be
// in one etcd.
//
// The role needs DELETE on the table, which the program's own role should not
// have. Each statement covers 1,000 marks and commits by itself. After an error
// some marks may be deleted, and Prune may be called again. The error is the
// driver's, wrapped.
func (g *Guard) Prune(ctx context.Context, db *sql.DB, t fencing.Token) (deleted int64, err error) {
	if err := cmp.Or(g.check(), t.Validate()); err != nil {
		return 0, err
	}
	var after []byte
	for {
		last, err := g.pruneTo(ctx, db, after)
		if err != nil {
			return deleted, fmt.Errorf("sqlguard: pruning table %s before %v: %w", g.table, t, err)
		}
		n, err := g.pruneBetween(ctx, db, after, last, t)
		deleted += n
		if err != nil {
			return deleted, fmt.Errorf("sqlguard: pruning table %s before %v: %w", g.table, t, err)
		}
		if last == nil {
			return deleted, nil
		}
		after = last
	}
}

// pruneTo returns the last key of the statement that begins after the given key.
// It returns nil if that statement covers the rest of the table.
func (g *Guard) pruneTo(ctx context.Context, db *sql.DB, after []byte) (last []byte, err error) {
	args := pruneArgs{dialect: g.dialect}
	query := fmt.Sprintf("SELECT claim_key FROM %s WHERE claim_key > %s ORDER BY claim_key LIMIT 1 OFFSET %d",
		g.table, args.key(after), pruneRows-1)
	err = db.QueryRowContext(ctx, query, args.values...).Scan(&last)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return last, err
}

// pruneBetween deletes the marks of one range in one statement. The database
// rechecks the newest version of a row before it deletes it, so a mark raised in
// the meantime stays.
func (g *Guard) pruneBetween(ctx context.Context, db *sql.DB, after, last []byte, t fencing.Token) (int64, error) {
	args := pruneArgs{dialect: g.dialect}
	query := fmt.Sprintf("DELETE FROM %s WHERE fence < %d AND fence %% %d < %d AND claim_key > %s",
		g.table, t.Fence, int64(1)<<keyspace.EpochShift, keyspace.Revision(t.Fence), args.key(after))
	if last != nil {
		query += " AND claim_key <= " + args.key(last)
	}
	tx, err := db.BeginTx(ctx, g.options())
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	result, err := tx.ExecContext(ctx, query, args.values...)
	if err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// pruneArgs puts keys into a statement in the way that Admit does.
type pruneArgs struct {
	dialect Dialect
	values  []any
}

func (a *pruneArgs) key(key []byte) string {
	switch a.dialect {
	case MySQL:
		return "x'" + hex.EncodeToString(key) + "'"
	case Postgres:
		a.values = append(a.values, append([]byte{}, key...)) // nil would be NULL
	default:
		a.values = append(a.values, string(key))
	}
	return a.dialect.placeholder(len(a.values))
}
