// Package sqlguard refuses the writes of former owners in a SQL database, within
// the transactions of those writes. It works with Postgres, MySQL, MariaDB and
// SQLite, through database/sql or the native interface of pgx. It imports no driver.
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
// A table has one row for each key: the mark, which is the greatest fence that
// was admitted. Admit raises the mark, or checks that it is not greater than the
// token's fence. In both cases Admit locks the row until the transaction ends. So
// the transaction of a newer owner either waits for this one, or came first, and
// then this one is refused.
//
// # What is not guaranteed
//
// Admit guards what the same transaction does in the same database, and nothing
// else. It does not guard tables of an engine without transactions. It does not
// guard what follows a statement that commits implicitly, as DDL does in MySQL.
// It does not guard a second file that SQLite has attached.
//
// An admission counts once its transaction is committed. To refuse the previous
// owner before the first write, seal: see [Guard.Gate].
//
// Call Admit first in the transaction. A transaction that reads earlier may read
// what the previous owner is about to change, and then write based on it. MySQL's
// default level, REPEATABLE READ, keeps that first snapshot until the transaction
// ends.
//
// Transactions of one key run one after another. Keep them short. A transaction
// that admits tokens of several keys should admit them in a fixed order;
// otherwise two such transactions may deadlock.
//
// # Errors
//
// Roll back after any error. After a stale token, the transaction holds the lock
// that the newer owner may be waiting for. After a deadlock, MySQL has ended the
// transaction, and the statements that follow commit one by one, unguarded.
//
// SQLite also ends the transaction when a statement that writes is interrupted,
// or when the disk is full. database/sql interrupts a statement when the context
// of that call ends. So give no statement a context of its own: pass the context
// of BeginTx. Once that context ends, database/sql refuses all further
// statements. Admit returns an error if SQLite has already ended the
// transaction. It cannot detect what happens after it returns.
//
// A deadlock, a serialization failure, a lock timeout and SQLITE_BUSY are
// returned as the driver's error, wrapped, and never as a stale token. Run the
// transaction again.
//
// # Poolers
//
// A pooler may give each transaction another connection, as PgBouncer does. Admit needs
// nothing from the session but its search_path: include the schema in Config.Table. If the
// driver keeps prepared statements that the pooler does not know, Admit fails with the
// driver's error, and admits nothing. Poolers for MySQL and MariaDB are not tested.
//
// # Isolation
//
// Admit is correct at every isolation level, because it reads the newest
// version of the row and locks it. A transaction whose snapshot is older than the stored
// fence fails with a driver error, from REPEATABLE READ on. That holds in Postgres, and
// in MariaDB from 11.6 on. In Postgres, use one level for all transactions of a
// key: one at REPEATABLE READ that waited for one at READ COMMITTED does not see
// what that one wrote. For the other reads of a transaction its isolation level applies: at
// READ UNCOMMITTED they may return data that is later rolled back.
//
// In SQLite, a transaction that reads first and writes later fails with SQLITE_BUSY if
// another transaction has written in between. The busy timeout does not help. A
// transaction that begins with Admit waits instead. If yours
// cannot begin with Admit, start them with BEGIN IMMEDIATE. The usual drivers do
// so with the DSN parameter _txlock=immediate.
//
// # The table
//
// [Guard.Migrate] creates the table; [Guard.Schema] returns the statements for
// migration tools. The program's role needs SELECT, INSERT and UPDATE on the
// table. It should not have DELETE: without its mark, a key admits every former
// owner again.
//
// Keys are compared as bytes, whatever the collation of the database. To read
// them:
//
//	SELECT convert_from(claim_key, 'UTF8'), fence FROM etcdclaims_fences         -- Postgres
//	SELECT CONVERT(claim_key USING utf8mb4), fence FROM etcdclaims_fences        -- MySQL
//
// Marks are kept forever, one row for each key that was ever admitted. If there
// are too many, use [Guard.Prune]. Do not delete rows yourself: a key
// without a mark admits an old token that is still on its way.
//
// A database that loses committed data loses marks with it, and may then admit
// what it had refused. A failover to an asynchronous replica is such a case: the owners
// must seal the new primary before other clients write to it. A synchronous replica has
// each fence whose admission was committed.
package sqlguard
