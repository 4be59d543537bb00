package databases_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/sqlguard"
)

// Many create the table at once, and again.
func TestMigrateAtOnce(t *testing.T) {
	each(t, nil, func(t *testing.T, db *database) {
		for _, table := range []string{"Marks_1", "marks_2", strings.Repeat("m", 63)} {
			guard, err := sqlguard.New(sqlguard.Config{Dialect: db.dialect, Table: table})
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					if err := guard.Migrate(t.Context(), db.DB); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if err := guard.Gate(db.DB).Admit(t.Context(), fencing.Token{Key: "k", Fence: 2}); err != nil {
				t.Error(err)
			}
			if err := guard.Migrate(t.Context(), db.DB); err != nil {
				t.Error(err)
			}
			if err := guard.Gate(db.DB).Admit(t.Context(), fencing.Token{Key: "k", Fence: 1}); !stale(err, 2) {
				t.Errorf("after Migrate: %v", err)
			}
		}
	})
}

// A database without the table admits nothing.
func TestNoTable(t *testing.T) {
	each(t, nil, func(t *testing.T, db *database) {
		guard, err := sqlguard.New(sqlguard.Config{Dialect: db.dialect, Table: "absent"})
		if err != nil {
			t.Fatal(err)
		}
		err = guard.Gate(db.DB).Admit(t.Context(), fencing.Token{Key: "k", Fence: 2})
		if _, refused := fencing.RefusalOf(err); err == nil || refused {
			t.Error(err)
		}
	})
}

// How keys can be read, as the package says.
func TestKeysCanBeRead(t *testing.T) {
	each(t, nil, func(t *testing.T, db *database) {
		const key = "naïve/\U0001f512 'x'"
		if err := db.guard.Gate(db.DB).Admit(t.Context(), fencing.Token{Key: key, Fence: 7}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(db.dsn, "latin1") {
			return // in which the key cannot be shown
		}
		column := map[sqlguard.Dialect]string{
			sqlguard.Postgres: "convert_from(claim_key, 'UTF8')", sqlguard.MySQL: "CONVERT(claim_key USING utf8mb4)", sqlguard.SQLite: "claim_key",
		}[db.dialect]
		var got string
		var fence int64
		if err := db.QueryRow("SELECT "+column+", fence FROM etcdclaims_fences").Scan(&got, &fence); err != nil || got != key || fence != 7 {
			t.Errorf("%q, %d, %v", got, fence, err)
		}
	})
}
