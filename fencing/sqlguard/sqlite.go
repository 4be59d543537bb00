package sqlguard

import (
	"context"
	"errors"
	"fmt"
)

// errNoTransaction is returned by Guard.Admit in SQLite if the connection has no
// open transaction: no transaction was begun, or SQLite has ended it. SQLite ends the
// transaction when a statement that writes is interrupted, for example by the end
// of the statement's own context, and when the disk is full. Statements after
// that commit one by one, unguarded.
var errNoTransaction = errors.New("no transaction is open")

// outside returns errNoTransaction if it can begin a transaction, and ends that
// one. The driver knows whether a transaction is open, but database/sql does not
// expose it.
func outside(ctx context.Context, r runner) error {
	if _, err := r.exec(ctx, "BEGIN"); err != nil {
		return nil // a transaction is open; any other fault shows in the next statement
	}
	if _, err := r.exec(ctx, "ROLLBACK"); err != nil {
		return fmt.Errorf("%w; rolling back the transaction begun as a check: %w", errNoTransaction, err)
	}
	return fmt.Errorf("%w: SQLite ended it after an error, or BEGIN was not run: "+
		"run the transaction again from its beginning", errNoTransaction)
}

// characterBytes returns how many bytes the database stores for an ASCII
// character: 1 in UTF-8, 2 in UTF-16.
const characterBytes = "length(CAST('a' AS BLOB))"

func checkEncoding(bytes int64) error {
	if bytes != 1 {
		return errors.New("the database is encoded as UTF-16, in which SQLite treats different keys as equal: " +
			"create it with PRAGMA encoding = 'UTF-8'")
	}
	return nil
}
