package databases_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/sqlguard"
)

// again says whether the database asks to run the transaction again.
func again(err error) bool {
	var pg interface{ SQLState() string }
	var my *mysql.MySQLError
	switch {
	case errors.As(err, &pg):
		return slices.Contains([]string{"40001", "40P01"}, pg.SQLState())
	case errors.As(err, &my):
		return slices.Contains([]uint16{1020, 1213}, my.Number)
	}
	return false
}

// blocks starts do, and waits until the server shows that it waits for a lock. It
// returns what do returns, later; at once, with blocked false, if it did not wait.
func (db *database) blocks(t *testing.T, do func() error) (blocked bool, result <-chan error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if db.waits(t) {
			return true, done
		}
		if len(done) > 0 {
			return false, done
		}
	}
	t.Fatal("it neither waits for a lock nor ends")
	return false, nil
}

// looking is held while somebody looks at who waits.
var looking sync.Mutex

func (db *database) waits(t *testing.T) bool {
	t.Helper()
	pause := time.Millisecond
	if db.dialect == sqlguard.MySQL {
		// InnoDB shows everybody what it showed last, until nobody has looked for
		// a tenth of a second.
		looking.Lock()
		defer looking.Unlock()
		pause = 110 * time.Millisecond
	}
	time.Sleep(pause)
	var n int
	if err := db.QueryRow(db.waiting).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n > 0
}

// An encounter is of two transactions, the second of which begins its admission
// while the first is between its effect and its end.
type encounter struct {
	name          string
	first, second int64 // fences
	rollsBack     bool  // the first
	admitted      bool  // the second, in the end
}

var encounters = []encounter{
	{"the old owner first", 2, 3, false, true},
	{"the old owner first, and rolls back", 2, 3, true, true},
	{"the new owner first", 3, 2, false, false},
	{"the new owner first, and rolls back", 3, 2, true, true},
	{"one owner twice", 2, 2, false, true},
}

// run returns what is wrong.
func (e encounter) run(t *testing.T, db *database, key string, iso sql.IsolationLevel, admit func(transaction, fencing.Token) error) error {
	t.Helper()
	ctx := t.Context()
	begin := func() transaction {
		tx, err := db.begin(ctx, iso)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tx.rollback)
		return tx
	}
	one, two := fencing.Token{Key: key, Fence: e.first}, fencing.Token{Key: key, Fence: e.second}
	first, second := begin(), begin()
	if err := admit(first, one); err != nil {
		return fmt.Errorf("the first: %w", err)
	}
	if err := db.insert(ctx, first, one, "first"); err != nil {
		return err
	}
	blocked, result := db.blocks(t, func() error { return admit(second, two) })
	var want []string
	if e.rollsBack {
		first.rollback()
	} else if err := first.commit(ctx); err != nil {
		return fmt.Errorf("the first: %w", err)
	} else {
		want = append(want, "first")
	}
	err := <-result
	if !blocked {
		return fmt.Errorf("the second did not wait for the first: %w", err)
	}
	if again(err) {
		if e.rollsBack && !errors.As(err, new(*mysql.MySQLError)) || iso <= sql.LevelReadCommitted {
			return fmt.Errorf("the second, for no reason: %w", err)
		}
		second.rollback()
		second = begin()
		err = admit(second, two)
	}
	if e.admitted && err == nil {
		// What was committed while it waited is not hidden from it.
		query := fmt.Sprintf("SELECT COUNT(*) FROM effects WHERE k = '%x'", key)
		if n, err := second.number(ctx, query); err != nil || n != int64(len(want)) {
			return fmt.Errorf("the second sees %d effects of the first, want %d (%w)", n, len(want), err)
		}
		err = db.insert(ctx, second, two, "second")
	}
	if e.admitted && err == nil {
		want = append(want, "second")
		err = second.commit(ctx)
	} else if !e.admitted {
		var stale *fencing.StaleError
		if !errors.As(err, &stale) || stale.Token != two || stale.Newest != e.first {
			return fmt.Errorf("the second is not told that it is stale: %w", err)
		}
		// The caller is told to roll back. One that does not has no other effect
		// on the mark, and in Postgres can go on reading.
		if _, err := second.number(ctx, "SELECT 1"); err != nil {
			return fmt.Errorf("after the stale token: %w", err)
		}
		err = second.commit(ctx)
	}
	if err != nil {
		return fmt.Errorf("the second: %w", err)
	}
	if got, err := db.effects(ctx, key); err != nil || !slices.Equal(got, want) {
		return fmt.Errorf("effects %q, want %q (%w)", got, want, err)
	}
	newest := max(e.first, e.second)
	if e.rollsBack {
		newest = e.second
	}
	if err := db.guard.Gate(db.DB).Admit(ctx, fencing.Token{Key: key, Fence: 1}); !stale(err, newest) {
		return fmt.Errorf("the mark is not %d: %w", newest, err)
	}
	return nil
}

func stale(err error, newest int64) bool {
	var s *fencing.StaleError
	return errors.As(err, &s) && s.Newest == newest
}

func TestEncounters(t *testing.T) {
	each(t, onServers, func(t *testing.T, db *database) {
		for _, iso := range []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			for _, e := range encounters {
				for _, mark := range []int64{0, 1, 2} { // as it stands before; 2 is equal to the old owner's
					key := fmt.Sprintf("%v, %s, mark %d", iso, e.name, mark)
					if mark > 0 {
						if err := db.guard.Gate(db.DB).Admit(t.Context(), fencing.Token{Key: key, Fence: mark}); err != nil {
							t.Fatal(err)
						}
					}
					if err := e.run(t, db, key, iso, func(tx transaction, token fencing.Token) error {
						return tx.admit(t.Context(), db.guard, token)
					}); err != nil {
						t.Errorf("%s: %v", key, err)
					}
				}
			}
		}
	})
}

// unlocked is a transaction in which an equal fence passes without a lock, as it
// does where somebody spares the write that changes nothing.
type unlocked struct{ *sql.Tx }

func (tx unlocked) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return tx.Tx.QueryRowContext(ctx, strings.Replace(query, " FOR UPDATE", "", 1), args...)
}

// The encounters find that.
func TestEncountersCanFail(t *testing.T) {
	w := ways[slices.IndexFunc(ways, func(w way) bool { return w.name == "postgres by pgx" })]
	db := w.create(t)
	token := fencing.Token{Key: "k", Fence: 2}
	if err := db.guard.Gate(db.DB).Admit(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	err := encounters[0].run(t, db, token.Key, sql.LevelReadCommitted, func(tx transaction, token fencing.Token) error {
		return db.guard.Admit(t.Context(), unlocked{tx.(*sqlTransaction).Tx}, token)
	})
	if err == nil || !strings.Contains(err.Error(), "did not wait") {
		t.Errorf("an equal fence without a lock passes: %v", err)
	}
}

// In SQLite one transaction writes at a time, and the other is told by an error,
// which is not taken for a stale token.
func TestBusy(t *testing.T) {
	each(t, func(w way) bool { return !w.server }, func(t *testing.T, db *database) {
		ctx := t.Context()
		db.dsn = strings.Replace(db.dsn, "busy_timeout(30000)", "busy_timeout(0)", 1)
		impatient := db.reopen(t)
		first, err := db.begin(ctx, sql.LevelDefault)
		if err != nil {
			t.Fatal(err)
		}
		defer first.rollback()
		if err := first.admit(ctx, db.guard, fencing.Token{Key: "k", Fence: 2}); err != nil {
			t.Fatal(err)
		}
		gate := db.guard.Gate(impatient)
		for fence := range int64(3) {
			err := gate.Admit(ctx, fencing.Token{Key: "k", Fence: fence + 1})
			if _, refused := fencing.RefusalOf(err); err == nil || refused {
				t.Errorf("fence %d beside a transaction that is open: %v", fence+1, err)
			}
		}
		if err := first.commit(ctx); err != nil {
			t.Fatal(err)
		}
		if err := gate.Admit(ctx, fencing.Token{Key: "k", Fence: 1}); !stale(err, 2) {
			t.Error(err)
		}
	})
}

// A transaction that has read before is not told that its token is stale, or
// admitted, by what it has read.
func TestReadsFirst(t *testing.T) {
	each(t, nil, func(t *testing.T, db *database) {
		ctx := t.Context()
		for i, iso := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			if iso != sql.LevelDefault && !db.server || strings.Contains(db.dsn, "immediate") {
				continue // nothing comes in between
			}
			key := fmt.Sprintf("k%d", i)
			gate := db.guard.Gate(db.DB)
			if err := gate.Admit(ctx, fencing.Token{Key: key, Fence: 5}); err != nil {
				t.Fatal(err)
			}
			for fence := int64(5); fence < 8; fence++ {
				tx, err := db.begin(ctx, iso)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.number(ctx, "SELECT COUNT(*) FROM effects"); err != nil {
					t.Fatal(err)
				}
				if iso == sql.LevelSerializable && db.dialect == sqlguard.MySQL {
					tx.rollback() // it has locked what it read, and nothing more
					continue
				}
				if err := gate.Admit(ctx, fencing.Token{Key: key, Fence: 6}); err != nil {
					t.Fatal(err)
				}
				err = tx.admit(ctx, db.guard, fencing.Token{Key: key, Fence: fence})
				snapshot := iso >= sql.LevelRepeatableRead || iso == sql.LevelDefault && db.dialect == sqlguard.MySQL
				switch {
				case again(err) && snapshot, !db.server && err != nil && !errors.Is(err, fencing.ErrStale):
				case fence < 6 && !stale(err, 6), fence >= 6 && err != nil:
					t.Errorf("%v: fence %d after 6: %v", iso, fence, err)
				}
				tx.rollback()
			}
		}
	})
}

// A connection on which the caller has begun a transaction will do.
func TestConnection(t *testing.T) {
	each(t, nil, func(t *testing.T, db *database) {
		ctx := t.Context()
		conn, err := db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		for i, end := range []string{"ROLLBACK", "COMMIT"} {
			for _, statement := range []string{"BEGIN", "", end} {
				if statement == "" {
					err = db.guard.Admit(ctx, conn, fencing.Token{Key: "k", Fence: 2})
				} else {
					_, err = conn.ExecContext(ctx, statement)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := db.guard.Gate(db.DB).Admit(ctx, fencing.Token{Key: "k", Fence: 1}); stale(err, 2) != (i == 1) {
				t.Errorf("after %s: %v", end, err)
			}
		}
	})
}

func TestSavepoint(t *testing.T) {
	each(t, nil, func(t *testing.T, db *database) {
		ctx := t.Context()
		tokens := []fencing.Token{{Key: "before", Fence: 2}, {Key: "within", Fence: 2}}
		err := db.transact(ctx, sql.LevelDefault, func(tx transaction) error {
			return errors.Join(
				tx.admit(ctx, db.guard, tokens[0]),
				tx.exec(ctx, "SAVEPOINT s"),
				tx.admit(ctx, db.guard, tokens[1]),
				tx.exec(ctx, "ROLLBACK TO SAVEPOINT s"),
			)
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, token := range tokens {
			token.Fence = 1
			err := db.guard.Gate(db.DB).Admit(ctx, token)
			if kept := stale(err, 2); kept != (i == 0) {
				t.Errorf("%v: %v", token, err)
			}
		}
	})
}

// What is wrong with the transaction, or the caller gone, is not a stale token.
func TestBrokenTransaction(t *testing.T) {
	each(t, nil, func(t *testing.T, db *database) {
		old := fencing.Token{Key: "k", Fence: 1}
		if err := db.guard.Gate(db.DB).Admit(t.Context(), fencing.Token{Key: "k", Fence: 2}); err != nil {
			t.Fatal(err)
		}
		refused := func(what string, err error) {
			if _, refused := fencing.RefusalOf(err); err == nil || refused {
				t.Errorf("%s: %v", what, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		if db.dialect == sqlguard.Postgres {
			tx, err := db.begin(ctx, sql.LevelDefault)
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.exec(ctx, "SELECT 1/0"); err == nil {
				t.Error("1/0 is something")
			}
			refused("a failed transaction", tx.admit(ctx, db.guard, old))
			tx.rollback()
		}
		tx, err := db.begin(ctx, sql.LevelDefault)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		refused("a caller that is gone", tx.admit(ctx, db.guard, old))
		tx.rollback()
		refused("a transaction that is over", tx.admit(t.Context(), db.guard, old))
	})
}
