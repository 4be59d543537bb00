package sqlguard

import (
	"context"
	"database/sql"
	"fmt"
)

// A key has up to 1,024 bytes: within what an index entry may have in Postgres
// (2,704 bytes), and in InnoDB with pages of 16 KB (3,072) or 8 KB (1,536). In
// InnoDB the primary key is locked without the gap beside it, so neighbours do
// not wait for each other.
var tables = map[Dialect]string{
	Postgres: "CREATE TABLE IF NOT EXISTS %s (claim_key bytea NOT NULL PRIMARY KEY, fence bigint NOT NULL)",

	SQLite: "CREATE TABLE IF NOT EXISTS %s (claim_key TEXT COLLATE BINARY NOT NULL PRIMARY KEY, fence INTEGER NOT NULL) WITHOUT ROWID",

	// The engine and the format of rows are the defaults of our time, and matter.
	MySQL: "CREATE TABLE IF NOT EXISTS %s (claim_key VARBINARY(1024) NOT NULL PRIMARY KEY, fence BIGINT NOT NULL, admissions BIGINT NOT NULL) " +
		"ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
}

// Schema returns the statements that bring a database up to this version of the
// package, from none or from any before it: run them in order, each on its own.
// They may be run again, and change nothing then. Later versions only append to
// them, and what they append leaves programs of this version working.
//
// In Postgres CREATE TABLE IF NOT EXISTS may fail if two run it at the same time
// and the table is not there: whoever runs it again succeeds.
func (g *Guard) Schema() []string {
	return []string{fmt.Sprintf(tables[g.dialect], g.table)}
}

// Migrate runs the statements of Schema, and may be called by several processes
// at once. In Postgres its role needs the right to create tables even where
// there is nothing to do. An error is the driver's, wrapped.
func (g *Guard) Migrate(ctx context.Context, db *sql.DB) error {
	for _, statement := range g.Schema() {
		var err error
		for range 3 { // the second try is for Postgres: see Schema
			if _, err = db.ExecContext(ctx, statement); err == nil || ctx.Err() != nil {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("sqlguard: creating table %s: %w", g.table, err)
		}
	}
	return nil
}
