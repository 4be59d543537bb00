package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"

	"github.com/etcdclaims/claims/fencing/sqlguard"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

const schema = `CREATE TABLE IF NOT EXISTS customers (name text PRIMARY KEY, fee integer NOT NULL);
CREATE TABLE IF NOT EXISTS invoices (
	id text PRIMARY KEY, tick text NOT NULL, customer text NOT NULL, cents integer NOT NULL, sent boolean NOT NULL DEFAULT false
);
INSERT OR IGNORE INTO customers VALUES ('ann', 500), ('bob', 700), ('eve', 900), ('joe', 300);`

// openDB opens the database in the file, with the table of fences. Without a file, it makes
// one and removes it at the end: a new etcd begins with low fences, which an old file would refuse.
func openDB(ctx context.Context, file string) (db *sql.DB, closeDB func() error, err error) {
	dir := ""
	if file == "" {
		if dir, err = os.MkdirTemp("", "service"); err != nil {
			return nil, nil, err
		}
		file = filepath.Join(dir, "service.db")
	}
	closeDB = func() error {
		err := db.Close()
		if dir != "" {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return err
	}
	if db, err = sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)&_txlock=immediate"); err != nil {
		return nil, nil, err
	}
	guard, err := sqlguard.New(sqlguard.Config{Dialect: sqlguard.SQLite})
	if err == nil {
		err = guard.Migrate(ctx, db)
	}
	if err == nil {
		_, err = db.ExecContext(ctx, schema)
	}
	if err != nil {
		return nil, nil, errors.Join(err, closeDB())
	}
	return db, closeDB, nil
}
