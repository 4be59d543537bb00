package sqlguard

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
)

// Gate returns a gate that admits each token in a transaction of its own. Use it
// with fencing.Seal: a new owner seals before its first effect, and from then on
// the previous owner is refused.
//
// The gate guards no effect: an effect that follows its transaction may come
// late. Each transaction with effects must call Admit itself.
//
// If the commit was sent and failed, the outcome is unknown. The error then
// matches fencing.ErrUnknown and the driver's error, and the token may be
// admitted again. With pgx, the package stdlib of pgx returns a *sql.DB for a
// pool.
//
// The gate is safe for concurrent use.
func (g *Guard) Gate(db *sql.DB) fencing.Gate {
	return fencing.GateFunc(func(ctx context.Context, t fencing.Token) error {
		if err := cmp.Or(g.check(), t.Validate()); err != nil {
			return err // before a connection is taken
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
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", ctx.Err(), err)
			}
			return fmt.Errorf("sqlguard: admitting %v: %w", t, err)
		default:
			return fmt.Errorf("sqlguard: admitting %v: committing: %w: %w", t, fencing.ErrUnknown, err)
		}
	})
}

// options returns the options of the gate's own transactions. At READ COMMITTED,
// a Postgres with a stricter default has no serialization failures here. The
// other databases have none in a transaction of one statement. MySQL with a
// statement-based binary log refuses to write at that level.
func (g *Guard) options() *sql.TxOptions {
	if g.dialect == Postgres {
		return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	return nil
}
