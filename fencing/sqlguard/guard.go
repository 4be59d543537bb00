package sqlguard

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
)

// DefaultTable is the name of the table of marks.
const DefaultTable = "etcdclaims_fences"

// Config says which database it is.
type Config struct {
	// Dialect must be set.
	Dialect Dialect
	// Table has the marks: a name, or two with a dot between them, of which the
	// first is a schema of Postgres or a database of MySQL. It is quoted, so case
	// counts where the database says so. All that write what the keys stand for
	// must name the same table, and in Postgres name its schema if their
	// search_path is not the same. Default: DefaultTable.
	Table string
}

// Guard admits tokens in transactions. It is safe for concurrent use, and knows
// no database: the transactions do.
type Guard struct {
	dialect Dialect
	table   string // quoted
	raise   string // the statement of Admit; for MySQL a format
}

// New returns a Guard. It does no I/O, and fails only if the configuration is
// wrong.
func New(cfg Config) (*Guard, error) {
	if err := cfg.Dialect.validate(); err != nil {
		return nil, err
	}
	if cfg.Table == "" {
		cfg.Table = DefaultTable
	}
	table, err := cfg.Dialect.quote("Table", cfg.Table, 2)
	if err != nil {
		return nil, err
	}
	return &Guard{dialect: cfg.Dialect, table: table, raise: fmt.Sprintf(raise[cfg.Dialect], table)}, nil
}

// raise are the statements that raise the mark to the token's fence, unless it is
// greater, lock it, and return it. The mark that comes back is the proof: equal
// to the fence says admitted, greater says stale, and what a database, proxy or
// trigger does that is not foreseen here says neither. The number of affected
// rows would not do: MySQL counts in two ways, as the client likes.
var raise = map[Dialect]string{
	Postgres: "INSERT INTO %s AS mark (claim_key, fence) VALUES ($1, $2) " +
		"ON CONFLICT (claim_key) DO UPDATE SET fence = GREATEST(mark.fence, EXCLUDED.fence) RETURNING mark.fence",

	SQLite: "INSERT INTO %s AS mark (claim_key, fence) VALUES (?, ?) " +
		"ON CONFLICT (claim_key) DO UPDATE SET fence = MAX(mark.fence, excluded.fence) RETURNING fence",

	// MySQL has no RETURNING, but LAST_INSERT_ID(x) has the reply carry x, in
	// MariaDB as well. Of two of them the one that is evaluated last counts: in
	// VALUES where the key is new, else behind ON DUPLICATE KEY UPDATE.
	//
	// A row that is set to what it was is locked but not changed, and where
	// several servers take writes at once (Galera, group replication) only
	// changes count as conflicts. So each admission changes one column.
	//
	// The key and the fence are not arguments. Text of an argument passes through
	// the character sets of the session, and with arguments the driver prepares
	// the statement first: two round trips. Nothing else can be written with
	// digits of a hexadecimal literal, and those of a number.
	MySQL: "INSERT INTO %s (claim_key, fence, admissions) VALUES (x'%%[1]x', LAST_INSERT_ID(%%[2]d), 1) " +
		"ON DUPLICATE KEY UPDATE admissions = admissions + (fence <= %%[2]d), fence = LAST_INSERT_ID(GREATEST(fence, %%[2]d))",
}

// Admit raises the mark of the token's key to its fence and locks it until the
// transaction ends, in one round trip. Call it before the transaction reads or
// writes anything, and again after a rollback to a savepoint set before it.
//
// If a greater fence was admitted the error is a *fencing.StaleError, which tells
// the greatest and matches fencing.ErrStale. A token that is not valid is refused
// before anything is sent, as fencing.Gate says. Any other error is that of the
// driver, wrapped, or says that what the database answered makes no sense. After
// each of them roll back: the package's comment says why.
//
// In MySQL the session's LAST_INSERT_ID() is the mark afterwards.
func (g *Guard) Admit(ctx context.Context, tx Tx, t fencing.Token) error {
	return g.admit(ctx, sqlRunner{tx}, t)
}

func (g *Guard) admit(ctx context.Context, r runner, t fencing.Token) error {
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
	return fmt.Errorf("sqlguard: admitting %v: the mark is said to be %d, lower than that: look for triggers on table %s, or a proxy that drops what LAST_INSERT_ID tells", t, mark, g.table)
}

func (g *Guard) raiseMark(ctx context.Context, r runner, t fencing.Token) (mark int64, err error) {
	switch g.dialect {
	case MySQL:
		result, err := r.exec(ctx, fmt.Sprintf(g.raise, t.Key, t.Fence))
		if err != nil {
			return 0, err
		}
		return result.LastInsertId()
	case Postgres:
		err = r.row(ctx, []any{&mark}, g.raise, []byte(t.Key), t.Fence)
	default:
		err = r.row(ctx, []any{&mark}, g.raise, t.Key, t.Fence)
	}
	return mark, err
}
