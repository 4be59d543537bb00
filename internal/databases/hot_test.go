package databases_test

import (
	"database/sql"
	"slices"
	"testing"

	"github.com/etcdclaims/claims/fencing"
)

// An owner that repeats itself leaves nothing behind, however long another
// transaction's snapshot keeps Postgres from tidying up: what it left would make
// every later admission of the key slower.
func TestRepeatedAdmissionsBesideASnapshot(t *testing.T) {
	each(t, func(w way) bool {
		return slices.Contains([]string{"postgres by pgx", "postgres by pq"}, w.name)
	}, func(t *testing.T, db *database) {
		ctx := t.Context()
		snapshot, err := db.begin(ctx, sql.LevelSerializable)
		if err != nil {
			t.Fatal(err)
		}
		defer snapshot.rollback()
		if _, err := snapshot.number(ctx, "SELECT COUNT(*) FROM effects"); err != nil {
			t.Fatal(err)
		}
		const admissions = 400
		for range admissions {
			if err := db.transact(ctx, 0, func(tx transaction) error {
				if err := tx.exec(ctx, "SET LOCAL synchronous_commit = off"); err != nil {
					return err
				}
				return tx.admit(ctx, db.guard, fencing.Token{Key: "k", Fence: 7})
			}); err != nil {
				t.Fatal(err)
			}
		}
		var bytes int64
		if err := db.QueryRow("SELECT pg_relation_size('etcdclaims_fences')").Scan(&bytes); err != nil || bytes > 8<<10 {
			t.Errorf("after %d admissions the table has %d bytes, want one page (%v)", admissions, bytes, err)
		}
	})
}
