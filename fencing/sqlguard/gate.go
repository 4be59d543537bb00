package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
)

// Gate returns a gate that admits each token in a transaction of its own, for
// fencing.Seal: a new owner calls it before its first effect, so that the old
// owner is shut out from then on.
//
// It guards no effect: what follows its transaction comes after it, and may come
// late. Each transaction with effects calls Admit itself.
//
// Once the commit was sent, an error says nothing of the outcome: it matches
// fencing.ErrUnknown, and the driver's. The token may be admitted again. Those who
// use pgx can have a *sql.DB of their pool from its package stdlib.
func (g *Guard) Gate(db *sql.DB) fencing.Gate {
	return fencing.GateFunc(func(ctx context.Context, t fencing.Token) error {
		if err := t.Validate(); err != nil {
			return err // for which no connection is needed
		}
		tx, err := db.BeginTx(ctx, g.options())
		if err != nil {
			return fmt.Errorf("sqlguard: admitting %v: %w", t, err)
		}
		defer func() { _ = tx.Rollback() }() // after a commit it does nothing
		if err := g.Admit(ctx, tx, t); err != nil {
			return err
		}
		switch err := tx.Commit(); {
		case err == nil:
			return nil
		case errors.Is(err, sql.ErrTxDone): // rolled back when ctx ended
			return fmt.Errorf("sqlguard: admitting %v: %w", t, errors.Join(err, ctx.Err()))
		default:
			return fmt.Errorf("sqlguard: admitting %v: committing: %w: %w", t, fencing.ErrUnknown, err)
		}
	})
}

// options are those of the gate's own transactions. READ COMMITTED spares it the
// serialization failures of a Postgres that is set to more by default. The others
// have none in a transaction of one statement, and MySQL with a binary log of
// statements does not write at that level.
func (g *Guard) options() *sql.TxOptions {
	if g.dialect == Postgres {
		return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	return nil
}
