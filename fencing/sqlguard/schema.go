package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// A key has up to 1,024 bytes. That fits in an index entry of Postgres (2,704 bytes),
// and of InnoDB with pages of 16 KB (3,072) or 8 KB (1,536). InnoDB locks the primary
// key without the gap next to it, so owners of neighbouring keys do not wait for each
// other.
var tables = map[Dialect]string{
	Postgres: "CREATE TABLE IF NOT EXISTS %s (claim_key bytea NOT NULL PRIMARY KEY, fence bigint NOT NULL)",

	SQLite: "CREATE TABLE IF NOT EXISTS %s (claim_key TEXT COLLATE BINARY NOT NULL PRIMARY KEY, fence INTEGER NOT NULL) WITHOUT ROWID",

	// The engine and the row format are current defaults, but must not be others.
	MySQL: "CREATE TABLE IF NOT EXISTS %s " +
		"(claim_key VARBINARY(1024) NOT NULL PRIMARY KEY, fence BIGINT NOT NULL, admissions BIGINT NOT NULL) " +
		"ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
}

// Schema returns the statements that create the table, or upgrade it from any
// earlier version of the package. Run them in order, each on its own. Running
// them again changes nothing. Later versions only append statements, and leave
// programs of this version working.
//
// In Postgres, CREATE TABLE IF NOT EXISTS may fail if two processes create the
// table at the same time. Run it again.
//
// Schema returns nil if New has not made the guard. Migrate returns an error then.
func (g *Guard) Schema() []string {
	if g.check() != nil {
		return nil
	}
	return []string{fmt.Sprintf(tables[g.dialect], g.table)}
}

// Migrate runs the statements of Schema. Several processes may call it at once.
// In Postgres, the role needs the right to create tables even if the table
// exists.
//
// Migrate also returns an error if the existing table cannot guard: in MySQL, if
// its engine has no transactions, such as MyISAM; in SQLite, if the database is
// encoded as UTF-16. A program that creates the table without Migrate must check both.
// Admit detects only the second. Any other error is the driver's, wrapped.
func (g *Guard) Migrate(ctx context.Context, db *sql.DB) error {
	if err := g.check(); err != nil {
		return err
	}
	for _, statement := range g.Schema() {
		var err error
		for range 3 { // Postgres may need a second attempt: see Schema
			if _, err = db.ExecContext(ctx, statement); err == nil || ctx.Err() != nil {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("sqlguard: creating table %s: %w", g.table, err)
		}
	}
	if err := g.checkTable(ctx, db); err != nil {
		return fmt.Errorf("sqlguard: table %s: %w", g.table, err)
	}
	return nil
}

// checkTable returns why the existing table cannot guard, or nil.
func (g *Guard) checkTable(ctx context.Context, db *sql.DB) error {
	switch g.dialect {
	case SQLite:
		var bytes int64
		if err := db.QueryRowContext(ctx, "SELECT "+characterBytes).Scan(&bytes); err != nil {
			return err
		}
		return checkEncoding(bytes)
	case MySQL:
		var engine, transactions string
		err := db.QueryRowContext(ctx, g.engineQuery()).Scan(&engine, &transactions)
		if errors.Is(err, sql.ErrNoRows) {
			return errors.New("it has no storage engine; it must be a table, not a view")
		}
		if err == nil && transactions != "YES" {
			err = fmt.Errorf("its engine %s has no transactions: change it with ALTER TABLE %s ENGINE=InnoDB", engine, g.table)
		}
		return err
	}
	return nil
}

// engineQuery returns a query for the table's engine and whether that has
// transactions. Names are plain ASCII, see quote. On a server that ignores case
// two tables may match.
func (g *Guard) engineQuery() string {
	name := strings.ReplaceAll(g.table, "`", "")
	schema := "DATABASE()"
	if first, second, two := strings.Cut(name, "."); two {
		schema, name = "'"+first+"'", second
	}
	return fmt.Sprintf("SELECT e.ENGINE, e.TRANSACTIONS "+
		"FROM information_schema.TABLES t JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE "+
		"WHERE t.TABLE_SCHEMA = %s AND t.TABLE_NAME = '%s' "+
		"ORDER BY BINARY t.TABLE_NAME = '%[2]s' DESC LIMIT 1", schema, name)
}
