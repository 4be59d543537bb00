package databases_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/sqlguard"
)

// A table that is there already may be of an engine that rolls nothing back.
func TestEngine(t *testing.T) {
	each(t, func(w way) bool { return w.name == "mariadb" || w.name == "mysql" }, func(t *testing.T, db *database) {
		for _, engine := range []string{"MyISAM", "MEMORY"} {
			g, err := sqlguard.New(sqlguard.Config{Dialect: sqlguard.MySQL, Table: "Other_" + engine})
			if err != nil {
				t.Fatal(err)
			}
			create := strings.Replace(g.Schema()[0], "InnoDB", engine, 1)
			db.must(t, strings.Replace(strings.Replace(create, "VARBINARY(1024)", "VARBINARY(767)", 1), " ROW_FORMAT=DYNAMIC", "", 1))
			if err := g.Migrate(t.Context(), db.DB); err == nil || !strings.Contains(err.Error(), engine) {
				t.Errorf("%s: %v", engine, err)
			}
			db.must(t, "ALTER TABLE Other_"+engine+" ENGINE=InnoDB")
			if err := g.Migrate(t.Context(), db.DB); err != nil {
				t.Error(err)
			}
		}
	})
}

// In UTF-16 SQLite takes U+FFFE and U+FFFF for one character, and so two keys for
// one.
func TestUTF16(t *testing.T) {
	db := sqlite("_pragma=encoding('UTF-16')")(t)
	g, err := sqlguard.New(sqlguard.Config{Dialect: sqlguard.SQLite})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Migrate(t.Context(), db.DB); err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("Migrate: %v", err)
	}
	db.must(t, g.Schema()[0])
	gate := g.Gate(db.DB)
	for _, key := range []string{"k\ufffe", "k\uffff"} {
		err := gate.Admit(t.Context(), fencing.Token{Key: key, Fence: 5})
		if _, refused := fencing.RefusalOf(err); err == nil || refused {
			t.Errorf("Admit: %v", err)
		}
	}
	utf8 := ways[0].create(t)
	for i, key := range []string{"k\ufffe", "k\uffff", "k\ufffd", "\ufeffk", "k"} {
		if err := utf8.guard.Gate(utf8.DB).Admit(t.Context(), fencing.Token{Key: key, Fence: int64(9 - i)}); err != nil {
			t.Errorf("UTF-8: %q: %v", key, err)
		}
	}
}

// SQLite ends a transaction one of whose writes is interrupted. What comes after it
// is not admitted, and a transaction whose statements share its own context has
// nothing after it.
func TestInterrupted(t *testing.T) {
	each(t, func(w way) bool { return !w.server }, func(t *testing.T, db *database) {
		const endless = "INSERT INTO effects (k, effect) WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT 'x', x FROM c"
		admitted := func(ctx context.Context) (transaction, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			tx, err := db.begin(ctx, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.admit(ctx, db.guard, fencing.Token{Key: "k", Fence: 1}); err != nil {
				t.Fatal(err)
			}
			return tx, cancel
		}

		// On a machine that stalls, a statement may end before it has begun. Then its
		// transaction goes on, and the next try takes longer.
		interrupted := func(after time.Duration) error {
			tx, cancel := admitted(t.Context())
			defer cancel()
			defer tx.rollback()
			statement, end := context.WithTimeout(t.Context(), after)
			defer end()
			if err := tx.exec(statement, endless); err == nil {
				t.Fatal("the statement was not interrupted")
			}
			return tx.admit(t.Context(), db.guard, fencing.Token{Key: "k", Fence: 1})
		}
		after := 50 * time.Millisecond
		err := interrupted(after)
		for ; err == nil && after < 5*time.Second; err = interrupted(after) {
			after *= 10
		}
		if err == nil || !strings.Contains(err.Error(), "no transaction is open") {
			t.Errorf("after the interruption: %v", err)
		}

		ctx, end := context.WithCancel(t.Context())
		defer end()
		tx, cancel := admitted(ctx)
		defer cancel()
		time.AfterFunc(50*time.Millisecond, end)
		if err := tx.exec(ctx, endless); err == nil {
			t.Fatal("the statement was not interrupted")
		}
		if err := tx.exec(t.Context(), "INSERT INTO effects (k, effect) VALUES ('k', 'late')"); err == nil {
			t.Error("a statement after the end of the transaction's context was carried out")
		}
		tx.rollback()
		if err := db.guard.Gate(db.DB).Admit(t.Context(), fencing.Token{Key: "k", Fence: 2}); err != nil {
			t.Error(err)
		}
	})
	db := ways[0].create(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := db.guard.Admit(t.Context(), conn, fencing.Token{Key: "k", Fence: 1}); err == nil || !strings.Contains(err.Error(), "no transaction is open") {
		t.Errorf("a connection without a transaction: %v", err)
	}
}
