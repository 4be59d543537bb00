package databases_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/sqlguard"
)

func TestRows(t *testing.T) {
	each(t, nil, func(t *testing.T, db *database) {
		ctx := t.Context()
		db.must(t, "CREATE TABLE accounts (bank varchar(20) NOT NULL, id varchar(20) NOT NULL, balance bigint NOT NULL, fence bigint, PRIMARY KEY (bank, id))")
		for _, id := range []string{"alice", "bob"} {
			db.must(t, "INSERT INTO accounts VALUES ('north', ?, 100, 0)", id)
		}
		db.must(t, "INSERT INTO accounts VALUES ('north', 'null', 100, NULL)")
		accounts, err := sqlguard.NewRowGuard(sqlguard.RowConfig{Dialect: db.dialect, Table: "accounts", Key: []string{"bank", "id"}})
		if err != nil {
			t.Fatal(err)
		}
		set := func(id string, fence, balance int64) error {
			return db.transact(ctx, sql.LevelDefault, func(tx transaction) error {
				return tx.update(ctx, accounts, fencing.Token{Key: "k", Fence: fence}, []any{"north", id}, db.placeholders("balance = ? -- comment"), balance)
			})
		}
		want := func(what string, err error, balance int64) {
			t.Helper()
			var got int64
			if scan := db.QueryRow("SELECT balance FROM accounts WHERE id = 'alice'").Scan(&got); scan != nil || err != nil || got != balance {
				t.Errorf("%s: %v; the balance is %d, want %d (%v)", what, err, got, balance, scan)
			}
		}
		want("first", set("alice", 5, 90), 90)
		want("equal", set("alice", 5, 80), 80)
		want("nothing changes", set("alice", 5, 80), 80)
		want("greater", set("alice", 1<<62, 70), 70)
		if err := set("alice", 1<<62-1, 0); !stale(err, 1<<62) {
			t.Error(err)
		}
		want("stale", nil, 70)
		if err := set("carol", 5, 0); !errors.Is(err, sql.ErrNoRows) {
			t.Error(err)
		}
		if err := set("null", 5, 0); err == nil || errors.Is(err, fencing.ErrStale) || errors.Is(err, sql.ErrNoRows) {
			t.Error(err)
		}
		var bob int64
		if err := db.QueryRow("SELECT balance + fence FROM accounts WHERE id = 'bob'").Scan(&bob); err != nil || bob != 100 {
			t.Errorf("%d, %v", bob, err)
		}

		banks, err := sqlguard.NewRowGuard(sqlguard.RowConfig{Dialect: db.dialect, Table: "accounts", Key: []string{"bank"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.transact(ctx, sql.LevelDefault, func(tx transaction) error {
			return tx.update(ctx, banks, fencing.Token{Key: "k", Fence: 1 << 62}, []any{"north"}, "balance = 0")
		}); err == nil || errors.Is(err, fencing.ErrStale) {
			t.Errorf("a key that is not unique: %v", err)
		}
		want("not unique", nil, 70)
	})
}

// A transaction that has a snapshot from before learns what is so now.
func TestRowsUnderSnapshot(t *testing.T) {
	each(t, onServers, func(t *testing.T, db *database) {
		ctx := t.Context()
		db.must(t, "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL, token bigint NOT NULL)")
		db.must(t, "INSERT INTO accounts VALUES (1, 100, 5)")
		accounts, err := sqlguard.NewRowGuard(sqlguard.RowConfig{Dialect: db.dialect, Table: "accounts", Key: []string{"id"}, Fence: "token"})
		if err != nil {
			t.Fatal(err)
		}
		update := func(tx transaction, fence int64) error {
			return tx.update(ctx, accounts, fencing.Token{Key: "k", Fence: fence}, []any{1}, "balance = balance - 1")
		}
		old, err := db.begin(ctx, sql.LevelRepeatableRead)
		if err != nil {
			t.Fatal(err)
		}
		defer old.rollback()
		if _, err := old.number(ctx, "SELECT balance FROM accounts"); err != nil {
			t.Fatal(err)
		}
		if err := db.transact(ctx, sql.LevelDefault, func(tx transaction) error { return update(tx, 6) }); err != nil {
			t.Fatal(err)
		}
		if err := update(old, 5); !again(err) && !stale(err, 6) {
			t.Error(err)
		}
	})
}
