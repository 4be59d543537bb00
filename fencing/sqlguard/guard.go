package sqlguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
)

// defaultTable is the default name of the table of marks.
const defaultTable = "etcdclaims_fences"

// Config configures a Guard.
type Config struct {
	// Dialect is the database's dialect. It is required.
	Dialect Dialect
	// Table is the table of marks. The name may have two parts, separated by a
	// dot; the first is then a schema of Postgres or a database of MySQL. The
	// name is quoted, so case matters wherever the database is case-sensitive.
	// Default: "etcdclaims_fences".
	//
	// All programs that write what the keys protect must use the same table. In
	// Postgres, include the schema unless they all have the same search_path.
	// Claims of several prefixes or etcds may share a table only if no key is
	// claimed under two of them.
	Table string
}

// Guard admits tokens in transactions. It holds no connection: each call gets a
// transaction. It is safe for concurrent use. New makes one: a nil Guard and the zero
// Guard admit nothing.
type Guard struct {
	dialect Dialect
	table   string // quoted
	raise   string // statement of Admit; for MySQL a format string
	lock    string // statement before raise, for Postgres only
}

// New returns a Guard. It does no I/O. It returns an error only if the
// configuration is invalid.
func New(cfg Config) (*Guard, error) {
	if err := cfg.Dialect.validate(); err != nil {
		return nil, err
	}
	if cfg.Table == "" {
		cfg.Table = defaultTable
	}
	table, err := cfg.Dialect.quote("Table", cfg.Table, 2)
	if err != nil {
		return nil, err
	}
	return &Guard{dialect: cfg.Dialect, table: table, raise: fmt.Sprintf(raise[cfg.Dialect], table), lock: fmt.Sprintf(lock, table)}, nil
}

// lock is the first statement of Admit in Postgres. It waits for the transactions
// that hold the row, locks the newest version of the row, and returns the mark,
// or 0 if there is no mark. An owner repeats itself far more often than owners
// change. A lock leaves no dead version of the row behind, as a write of the same
// value would. Dead versions pile up for as long as the database has an older
// snapshot.
//
// A transaction that keeps one snapshot to its end does not see what was committed
// while it waited for the lock, and a lock leaves no trace by which Postgres would
// refuse it. So at these levels Admit writes the row in any case: whoever waits for
// it fails.
const lock = "SELECT COALESCE((SELECT fence FROM %s WHERE claim_key = $1 FOR UPDATE), 0), " +
	"current_setting('transaction_isolation') IN ('repeatable read', 'serializable')"

// raise is the statement that raises the mark to the token's fence unless the
// mark is greater, locks the row, and returns the mark. The returned mark is the
// proof: equal to the fence means admitted, greater means stale. Anything else,
// such as a database, proxy or trigger that behaves unexpectedly, yields neither.
// The number of affected rows would not do: MySQL counts in two ways, depending
// on the client.
var raise = map[Dialect]string{
	Postgres: "INSERT INTO %s AS mark (claim_key, fence) VALUES ($1, $2) " +
		"ON CONFLICT (claim_key) DO UPDATE SET fence = GREATEST(mark.fence, EXCLUDED.fence) RETURNING mark.fence",

	// With UTF-16 text SQLite treats some different keys as equal.
	SQLite: "INSERT INTO %s AS mark (claim_key, fence) VALUES (?, ?) " +
		"ON CONFLICT (claim_key) DO UPDATE SET fence = MAX(mark.fence, excluded.fence) RETURNING fence, " + characterBytes,

	// MySQL has no RETURNING. LAST_INSERT_ID(x) makes the reply carry x, in MariaDB
	// too. If there are two, the one evaluated last counts: the one in VALUES if the
	// key is new, otherwise the one after ON DUPLICATE KEY UPDATE.
	//
	// A row that is set to its old value is locked, but not changed. Clusters that
	// accept writes on several servers (Galera, group replication) detect conflicts
	// of changes only. So each admission changes one column.
	//
	// The key and the fence are not arguments. Arguments of text pass through the
	// character sets of the session. They also make the driver prepare the statement
	// first, which takes two round trips. A hexadecimal literal and a number leave no
	// room for an injection.
	MySQL: "INSERT INTO %s (claim_key, fence, admissions) VALUES (x'%%[1]x', LAST_INSERT_ID(%%[2]d), 1) " +
		"ON DUPLICATE KEY UPDATE admissions = admissions + (fence <= %%[2]d), fence = LAST_INSERT_ID(GREATEST(fence, %%[2]d))",
}

// Admit raises the mark of the token's key to its fence, and locks the mark until
// the transaction ends. It takes one round trip. In Postgres it takes a second one if
// the fence is greater than the mark, as in the first transaction of an owner. From
// REPEATABLE READ on it always does.
//
// Call Admit before the transaction reads or writes anything. Call it again after
// a rollback to a savepoint that was set before it.
//
// If a greater fence was admitted, the error is a *fencing.StaleError, which
// matches fencing.ErrStale and has the greatest fence. A token that is not valid
// is refused as fencing.Gate describes, before anything is sent. Any other error
// is the driver's, wrapped, or reports an impossible answer of the database. Roll
// back after any error: see the package documentation.
//
// In SQLite, Admit returns an error if the connection has no open transaction: none was
// begun, or SQLite has ended it. In MySQL, Admit sets the session's LAST_INSERT_ID() to the mark.
func (g *Guard) Admit(ctx context.Context, tx Tx, t fencing.Token) error {
	return g.admit(ctx, sqlRunner{tx}, t)
}

// check returns an error unless New has made the guard.
func (g *Guard) check() error {
	if g == nil || g.dialect == 0 {
		return errors.New("sqlguard: the Guard was not made by New, or the error of New was ignored")
	}
	return nil
}

func (g *Guard) admit(ctx context.Context, r runner, t fencing.Token) error {
	if err := g.check(); err != nil {
		return err
	}
	if err := t.Validate(); err != nil {
		return err
	}
	if err := r.check(g.dialect); err != nil {
		return err
	}
	mark, err := g.raiseMark(ctx, r, t)
	if err != nil {
		return fmt.Errorf("sqlguard: admitting %v: %w", t, err)
	}
	switch {
	case mark == t.Fence:
		return nil
	case mark > t.Fence:
		return &fencing.StaleError{Token: t, Newest: mark}
	}
	return fmt.Errorf("sqlguard: admitting %v: the database returned the lower mark %d: "+
		"look for triggers on table %s, or a proxy that drops LAST_INSERT_ID", t, mark, g.table)
}

// raiseMark returns the mark once the transaction has locked it.
func (g *Guard) raiseMark(ctx context.Context, r runner, t fencing.Token) (mark int64, err error) {
	switch g.dialect {
	case MySQL:
		result, err := r.exec(ctx, fmt.Sprintf(g.raise, t.Key, t.Fence))
		if err != nil {
			return 0, err
		}
		return result.LastInsertId()
	case Postgres:
		key := []byte(t.Key)
		var snapshot bool
		if err := r.row(ctx, []any{&mark, &snapshot}, g.lock, key); err != nil || mark > t.Fence || mark == t.Fence && !snapshot {
			return mark, err
		}
		err = r.row(ctx, []any{&mark}, g.raise, key, t.Fence)
	default:
		if err := outside(ctx, r); err != nil {
			return 0, err
		}
		var bytes int64
		if err := r.row(ctx, []any{&mark, &bytes}, g.raise, t.Key, t.Fence); err != nil {
			return 0, err
		}
		err = checkEncoding(bytes)
	}
	return mark, err
}
