package sqlguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/sqlguard"
)

// A transfer between two accounts by the owner of the claim on the ledger. Admit is
// the first statement of its transaction.
func Example() {
	guard, err := sqlguard.New(sqlguard.Config{Dialect: sqlguard.Postgres})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(guard.Schema()[0])

	_ = func(ctx context.Context, db *sql.DB, token fencing.Token) error { // claim.Token() returns the token
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		err = guard.Admit(ctx, tx, token) // before anything is read or written
		if errors.Is(err, fencing.ErrStale) {
			return err // another owns the ledger now: stop
		}
		if err != nil {
			return err // a database error: run the transaction again
		}
		if _, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance - 30 WHERE id = 'alice'"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance + 30 WHERE id = 'bob'"); err != nil {
			return err
		}
		return tx.Commit()
	}
	// Output: CREATE TABLE IF NOT EXISTS "etcdclaims_fences" (claim_key bytea NOT NULL PRIMARY KEY, fence bigint NOT NULL)
}
