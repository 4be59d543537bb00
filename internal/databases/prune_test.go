package databases_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/etcdclaims/claims/fencing"
)

// epoch is what a fence has above the revision.
const epoch = 1 << 47

// Claims of several prefixes of one etcd share the table. Each prefix has an epoch
// of its own, so fences alone do not tell which token is older.
func TestPrune(t *testing.T) {
	each(t, nil, func(t *testing.T, db *database) {
		ctx := t.Context()
		gate := db.guard.Gate(db.DB)
		before := fencing.Token{Key: "prune", Fence: epoch + 100} // acquired for the purpose
		marks := map[fencing.Token]bool{                          // whether it stays
			{Key: "older", Fence: epoch + 99}:               false,
			{Key: "another prefix, older", Fence: 99}:       false,
			{Key: "another prefix, newer", Fence: 101}:      true, // the fence is lower
			{Key: "before a restore", Fence: 5000}:          true, // nobody knows any more
			{Key: "newer", Fence: epoch + 101}:              true,
			{Key: "the next epoch", Fence: 2*epoch + 50}:    true, // a restore rewound the revisions
			{Key: "at once", Fence: epoch + 100}:            true,
			{Key: "naïve 'quoted' \U0001f512", Fence: 1}:    false,
			{Key: "naïve 'quoted' \U0001f512/", Fence: 1e9}: true,
		}
		want := 0
		for token, stays := range marks {
			if err := gate.Admit(ctx, token); err != nil {
				t.Fatal(err)
			}
			if !stays {
				want++
			}
		}
		for _, n := range []int{want, 0} {
			if deleted, err := db.guard.Prune(ctx, db.DB, before); err != nil || int(deleted) != n {
				t.Errorf("%d marks deleted, want %d (%v)", deleted, n, err)
			}
		}
		for token, stays := range marks {
			outlived := fencing.Token{Key: token.Key, Fence: token.Fence - 1}
			if outlived.Fence == 0 {
				outlived.Fence = 1
			}
			if err := gate.Admit(ctx, outlived); stale(err, token.Fence) != stays {
				t.Errorf("%v after the mark of %v: %v", outlived, token, err)
			}
		}
	})
}

// Prune goes through a table that takes many statements, beside owners.
func TestPruneMany(t *testing.T) {
	each(t, func(w way) bool {
		return slices.Contains([]string{"sqlite", "postgres by pgx", "mariadb"}, w.name)
	}, func(t *testing.T, db *database) {
		ctx := t.Context()
		const many = 3500
		err := db.transact(ctx, 0, func(tx transaction) error {
			for i := range many {
				if err := tx.admit(ctx, db.guard, fencing.Token{Key: fmt.Sprintf("k/%d", i), Fence: int64(10 + i%2)}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		deleted, err := db.guard.Prune(ctx, db.DB, fencing.Token{Key: "prune", Fence: 11})
		if err != nil || deleted != many/2 {
			t.Errorf("%d marks deleted, want %d (%v)", deleted, many/2, err)
		}
		var left int
		if err := db.QueryRow("SELECT COUNT(*) FROM etcdclaims_fences WHERE fence = 11").Scan(&left); err != nil || left != many/2 {
			t.Errorf("%d marks are left, want %d (%v)", left, many/2, err)
		}
	})
}

// A mark that an open transaction raises is judged by what it is raised to.
func TestPruneBesideAnOwner(t *testing.T) {
	each(t, onServers, func(t *testing.T, db *database) {
		ctx := t.Context()
		if err := db.guard.Gate(db.DB).Admit(ctx, fencing.Token{Key: "k", Fence: 5}); err != nil {
			t.Fatal(err)
		}
		owner, err := db.begin(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer owner.rollback()
		if err := owner.admit(ctx, db.guard, fencing.Token{Key: "k", Fence: 20}); err != nil {
			t.Fatal(err)
		}
		blocked, result := db.blocks(t, func() error {
			deleted, err := db.guard.Prune(ctx, db.DB, fencing.Token{Key: "prune", Fence: 10})
			if deleted > 0 {
				err = fmt.Errorf("%d marks deleted (%w)", deleted, err)
			}
			return err
		})
		if err := owner.commit(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-result; err != nil {
			t.Errorf("waited %v: %v", blocked, err)
		}
		if err := db.guard.Gate(db.DB).Admit(ctx, fencing.Token{Key: "k", Fence: 19}); !stale(err, 20) {
			t.Error(err)
		}
	})
}
