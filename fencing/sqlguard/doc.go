// Package sqlguard refuses the writes of outlived owners in a SQL database, in
// the writes' own transactions. It works with Postgres, MySQL, MariaDB and
// SQLite, through database/sql or pgx, and imports neither driver.
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	defer tx.Rollback()
//	if err := guard.Admit(ctx, tx, token); err != nil {
//		return err // for example fencing.ErrStale
//	}
//	// ... read and write with tx ...
//	return tx.Commit()
//
// A table has a row for each key: the mark, the greatest fence that was admitted.
// Admit raises it, or finds it greater than the token's, in one statement, and
// thereby locks it to the end of the transaction, also where the fence is the one
// that stands there. So a newer owner's transaction comes behind this one, or
// before it, and then this one is refused.
//
// # What it does not do
//
// It guards what the same transaction does in the same database, and no more: not
// tables of an engine without transactions, not what follows a statement that
// commits by itself, as DDL does in MySQL, and not a second file that SQLite has
// attached.
//
// An admission counts once its transaction is committed. To shut the old owner
// out before the first write, seal: see Guard.Gate.
//
// A transaction that read before it called Admit may have read what the owner
// before was still to change, and write by that. Call Admit first. The default of
// MySQL, REPEATABLE READ, keeps what it read first to the end.
//
// Transactions of one key come one after the other. Keep them short. One that
// admits tokens of several keys should take them in a fixed order, else two of
// them may deadlock.
//
// # Errors
//
// After any error roll back, whatever it is. After a stale token the transaction
// holds the lock that the newer owner may want. After a deadlock MySQL has ended
// the transaction, and statements that follow commit one by one, unguarded.
//
// A deadlock, a serialization failure, a lock that was not had in time, or
// SQLITE_BUSY is the driver's error, wrapped, never taken for a stale token: run
// the transaction again.
//
// # Isolation
//
// Admit is right at every level, since a write looks at the newest row and locks
// it. From REPEATABLE READ on (in MariaDB from 11.6 on) a transaction whose
// snapshot is older than the mark fails with an error of the driver's instead of
// waiting. What the transaction reads besides is as the level has it: at READ
// UNCOMMITTED that may never have been.
//
// In SQLite a transaction that reads first and writes later fails with
// SQLITE_BUSY if another has written meanwhile, however long the busy timeout. One
// that begins with Admit waits. Where that cannot be, have transactions begin with
// BEGIN IMMEDIATE, as the DSN parameter _txlock=immediate of usual drivers says.
//
// # The table
//
// Guard.Migrate creates it; Guard.Schema tells how, for tools that do so. The
// role of the program needs SELECT, INSERT and UPDATE on it, and should not have
// DELETE: who deletes a mark lets in every owner there ever was.
//
// Keys are compared as bytes, whatever collation the database has. To read them:
//
//	SELECT convert_from(claim_key, 'UTF8'), fence FROM etcdclaims_fences         -- Postgres
//	SELECT CONVERT(claim_key USING utf8mb4), fence FROM etcdclaims_fences        -- MySQL
//
// Marks are kept for ever, a row for each key that was ever admitted. If they
// become too many, let F be the fence of a claim that was acquired for the
// purpose. Once every process that ran at that time has ended, and every request
// that was on its way or in a queue then is gone, no token below F can arrive any
// more, and
//
//	DELETE FROM etcdclaims_fences WHERE fence < F
//
// is safe. Fences of one etcd compare across keys for this, and only this,
// purpose, as long as it is not restored from a backup.
//
// A database that loses what it has committed, as on failover to a replica that
// lags behind, loses marks with it, and may admit what it had refused.
package sqlguard
