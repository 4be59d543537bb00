package sqlguard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/sqlguard"
)

var token = fencing.Token{Key: "a'b\\é", Fence: 34}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"": true, "t": true, "_T1": true, "app.fences": true, strings.Repeat("t", 63): true,
		strings.Repeat("t", 64): false, "1t": false, "a.b.c": false, ".t": false, "t.": false, "a b": false, "t-": false, "té": false,
		`t"`: false, "t`": false, "t;": false, `t" (claim_key, fence) VALUES ('x', 1); --`: false, "t%d": false, "t\x00": false,
	} {
		for _, d := range []sqlguard.Dialect{sqlguard.Postgres, sqlguard.MySQL, sqlguard.SQLite} {
			if _, err := sqlguard.New(sqlguard.Config{Dialect: d, Table: name}); (err == nil) != ok {
				t.Errorf("%v, table %q: %v", d, name, err)
			}
			if strings.Contains(name, ".") || name == "" {
				continue
			}
			for _, cfg := range []sqlguard.RowConfig{{Table: name, Key: []string{"id"}}, {Table: "t", Key: []string{"id", name}}, {Table: "t", Key: []string{"id"}, Fence: name}} {
				cfg.Dialect = d
				if _, err := sqlguard.NewRowGuard(cfg); (err == nil) != ok {
					t.Errorf("%+v: %v", cfg, err)
				}
			}
		}
	}
	for _, d := range []sqlguard.Dialect{0, -1, 4} {
		if _, err := sqlguard.New(sqlguard.Config{Dialect: d}); err == nil || !strings.Contains(err.Error(), d.String()) {
			t.Errorf("%v: %v", d, err)
		}
		if _, err := sqlguard.NewRowGuard(sqlguard.RowConfig{Dialect: d, Table: "t", Key: []string{"id"}}); err == nil {
			t.Errorf("%v passes", d)
		}
	}
	for _, cfg := range []sqlguard.RowConfig{{Dialect: sqlguard.SQLite, Table: "t"}, {Dialect: sqlguard.SQLite, Key: []string{"id"}}} {
		if _, err := sqlguard.NewRowGuard(cfg); err == nil {
			t.Errorf("%+v passes", cfg)
		}
	}
}

// marked is what a database answers that has the mark.
func marked(d sqlguard.Dialect, mark int64) *fake {
	f := &fake{row: []driver.Value{mark}, inserted: mark, affected: 1}
	if d == sqlguard.SQLite {
		f.row = append(f.row, int64(1)) // byte to a character
	}
	return f
}

// These are for reading, by whoever reviews what reaches the database.
func TestStatements(t *testing.T) {
	t.Parallel()
	const (
		lock = `SELECT COALESCE((SELECT fence FROM "s"."t" WHERE claim_key = $1 FOR UPDATE), 0), current_setting('transaction_isolation') IN ('repeatable read', 'serializable')`
		pg   = `INSERT INTO "s"."t" AS mark (claim_key, fence) VALUES ($1, $2) ON CONFLICT (claim_key) DO UPDATE SET fence = GREATEST(mark.fence, EXCLUDED.fence) RETURNING mark.fence`
		lite = `INSERT INTO "s"."t" AS mark (claim_key, fence) VALUES (?, ?) ON CONFLICT (claim_key) DO UPDATE SET fence = MAX(mark.fence, excluded.fence) RETURNING fence, length(CAST('a' AS BLOB))`
		my   = "INSERT INTO `s`.`t` (claim_key, fence, admissions) VALUES (x'6127625cc3a9', LAST_INSERT_ID(34), 1) " +
			"ON DUPLICATE KEY UPDATE admissions = admissions + (fence <= 34), fence = LAST_INSERT_ID(GREATEST(fence, 34))"
	)
	key := []byte(token.Key)
	for _, test := range []struct {
		dialect    sqlguard.Dialect
		mark       int64
		snapshot   bool
		statements []string
		args       []any
	}{
		{sqlguard.Postgres, 34, false, []string{lock}, []any{key}},
		{sqlguard.Postgres, 34, true, []string{lock, pg}, []any{key, key, int64(34)}},
		{sqlguard.Postgres, 33, false, []string{lock, pg}, []any{key, key, int64(34)}},
		{sqlguard.SQLite, 34, false, []string{lite}, []any{token.Key, int64(34)}},
		{sqlguard.MySQL, 34, false, []string{my}, nil},
	} {
		f := marked(test.dialect, test.mark)
		f.snapshot = test.snapshot
		err := newGuard(t, sqlguard.Config{Dialect: test.dialect, Table: "s.t"}).Admit(t.Context(), f.begin(t), token)
		if (err == nil) != (test.mark == 34) {
			t.Error(err)
		}
		if !slices.Equal(f.log, test.statements) || !reflect.DeepEqual(f.args, test.args) {
			t.Errorf("got %q with %v", f.log, f.args)
		}
	}
}

// The mark that the database tells decides, and only that.
func TestMarks(t *testing.T) {
	t.Parallel()
	for _, d := range []sqlguard.Dialect{sqlguard.Postgres, sqlguard.MySQL, sqlguard.SQLite} {
		admit := func(mark int64) error {
			return newGuard(t, sqlguard.Config{Dialect: d}).Admit(t.Context(), marked(d, mark).begin(t), token)
		}
		if err := admit(34); err != nil {
			t.Error(err)
		}
		var stale *fencing.StaleError
		if err := admit(35); !errors.As(err, &stale) || *stale != (fencing.StaleError{Token: token, Newest: 35}) {
			t.Error(err)
		}
		for _, mark := range []int64{0, 33, -1} {
			err := admit(mark)
			if _, refused := fencing.RefusalOf(err); err == nil || refused {
				t.Errorf("%v tells mark %d: %v", d, mark, err)
			}
		}
		f := &fake{}
		if err := newGuard(t, sqlguard.Config{Dialect: d}).Admit(t.Context(), f.begin(t), token); err == nil {
			t.Errorf("%v tells no mark, and admits", d)
		}
	}
}

// A transaction that SQLite has ended admits nothing, nor does a database in which
// it confuses keys.
func TestSQLiteGuardsNothing(t *testing.T) {
	t.Parallel()
	g := newGuard(t, sqlguard.Config{Dialect: sqlguard.SQLite})
	f := marked(sqlguard.SQLite, 34)
	f.over = true
	if err := g.Admit(t.Context(), f.begin(t), token); !errors.Is(err, sqlguard.ErrNoTransaction) || !slices.Equal(f.log, []string{"BEGIN", "ROLLBACK"}) {
		t.Errorf("%v after %q", err, f.log)
	}
	f = marked(sqlguard.SQLite, 34)
	f.row[1] = int64(2)
	if err := g.Admit(t.Context(), f.begin(t), token); err == nil || errors.Is(err, fencing.ErrStale) {
		t.Errorf("UTF-16: %v", err)
	}
}

func TestNothingIsSent(t *testing.T) {
	t.Parallel()
	f := &fake{}
	tx := f.begin(t)
	g := newGuard(t, sqlguard.Config{Dialect: sqlguard.MySQL})
	row, err := sqlguard.NewRowGuard(sqlguard.RowConfig{Dialect: sqlguard.MySQL, Table: "t", Key: []string{"id"}})
	if err != nil {
		t.Fatal(err)
	}
	db := f.open(t)
	for name, err := range map[string]error{
		"zero":             g.Admit(t.Context(), tx, fencing.Token{Key: "k"}),
		"invalid":          g.Admit(t.Context(), tx, fencing.Token{Fence: 1}),
		"invalid, gate":    g.Gate(db).Admit(t.Context(), fencing.Token{Fence: 1}),
		"pool":             g.Admit(t.Context(), db, token),
		"embedded pool":    g.Admit(t.Context(), struct{ *sql.DB }{db}, token),
		"another dialect":  sqlguard.AdmitPgx(t.Context(), g, pgxTx{}, token),
		"row, invalid":     row.Update(t.Context(), tx, fencing.Token{Key: "k"}, []any{1}, "a = 1"),
		"row, pool":        row.Update(t.Context(), db, token, []any{1}, "a = 1"),
		"row, too few key": row.Update(t.Context(), tx, token, nil, "a = 1"),
		"row, dialect":     sqlguard.UpdatePgx(t.Context(), row, pgxTx{}, token, []any{1}, "a = 1"),
	} {
		if err == nil || errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(f.log) > 0 {
		t.Errorf("sent: %q", f.log)
	}
}

// pgxTx has the shape of a pgx.Tx.
type pgxTx struct{}

type (
	tag int64
	row struct{}
)

func (n tag) RowsAffected() int64 { return int64(n) }
func (row) Scan(...any) error     { panic("sent") }

func (pgxTx) Exec(context.Context, string, ...any) (tag, error) { panic("sent") }
func (pgxTx) QueryRow(context.Context, string, ...any) row      { panic("sent") }
func (pgxTx) Commit(context.Context) error                      { return nil }
func (pgxTx) Rollback(context.Context) error                    { return nil }

func TestGate(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	for _, test := range []struct {
		name string
		fake fake
		want error
		log  []string // without the statement
	}{
		{"OK", fake{row: []driver.Value{int64(34)}}, nil, []string{"BEGIN Read Committed", "COMMIT"}},
		{"ErrStale", fake{row: []driver.Value{int64(35)}}, fencing.ErrStale, []string{"BEGIN Read Committed", "ROLLBACK"}},
		{"statement", fake{err: broken}, broken, []string{"BEGIN Read Committed", "ROLLBACK"}},
		{"ErrUnknown", fake{row: []driver.Value{int64(34)}, commit: broken}, fencing.ErrUnknown, []string{"BEGIN Read Committed", "COMMIT"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &test.fake
			err := newGuard(t, sqlguard.Config{Dialect: sqlguard.Postgres}).Gate(f.open(t)).Admit(t.Context(), token)
			if !errors.Is(err, test.want) || errors.Is(err, fencing.ErrUnknown) != errors.Is(test.want, fencing.ErrUnknown) {
				t.Error(err)
			}
			f.log = slices.DeleteFunc(f.log, func(s string) bool { return strings.HasPrefix(s, "SELECT") })
			if !slices.Equal(f.log, test.log) {
				t.Errorf("got %q, want %q", f.log, test.log)
			}
		})
	}
	for _, d := range []sqlguard.Dialect{sqlguard.MySQL, sqlguard.SQLite} {
		f := marked(d, 34)
		if err := newGuard(t, sqlguard.Config{Dialect: d}).Gate(f.open(t)).Admit(t.Context(), token); err != nil || f.log[0] != "BEGIN Default" {
			t.Errorf("%v: %v, %q", d, err, f.log)
		}
	}
}

func TestRowStatements(t *testing.T) {
	t.Parallel()
	for d, want := range map[sqlguard.Dialect]struct {
		statement string
		args      []any
	}{
		sqlguard.Postgres: {"UPDATE \"a\" SET \"fence\" = $2, n = n - $1\nWHERE \"x\" = $3 AND \"y\" = $4 AND \"fence\" <= $2", []any{int64(30), int64(34), "u", "v"}},
		sqlguard.SQLite:   {"UPDATE \"a\" SET \"fence\" = ?, n = n - ?\nWHERE \"x\" = ? AND \"y\" = ? AND \"fence\" <= ?", []any{int64(34), int64(30), "u", "v", int64(34)}},
		sqlguard.MySQL:    {"UPDATE `a` SET `fence` = LAST_INSERT_ID(GREATEST(`fence`, ?)), n = n - ?\nWHERE `x` = ? AND `y` = ? AND `fence` <= ?", []any{int64(34), int64(30), "u", "v", int64(34)}},
	} {
		g, err := sqlguard.NewRowGuard(sqlguard.RowConfig{Dialect: d, Table: "a", Key: []string{"x", "y"}})
		if err != nil {
			t.Fatal(err)
		}
		set := "n = n - ?"
		if d == sqlguard.Postgres {
			set = "n = n - $1"
		}
		f := &fake{affected: 1}
		if err := g.Update(t.Context(), f.begin(t), token, []any{"u", "v"}, set, 30); err != nil {
			t.Error(err)
		}
		if !slices.Equal(f.log, []string{want.statement}) || !reflect.DeepEqual(f.args, want.args) {
			t.Errorf("got %q with %v", f.log, f.args)
		}
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	broken := errors.New("permission denied")
	for d, row := range map[sqlguard.Dialect][]driver.Value{
		sqlguard.Postgres: nil, sqlguard.MySQL: {"InnoDB", "YES"}, sqlguard.SQLite: {int64(1)},
	} {
		g := newGuard(t, sqlguard.Config{Dialect: d, Table: "s.t"})
		f := &fake{row: row}
		if err := g.Migrate(t.Context(), f.open(t)); err != nil || !slices.Equal(f.log[:1], g.Schema()) {
			t.Errorf("%v, %q", err, f.log)
		}
		if err := g.Migrate(t.Context(), (&fake{err: broken}).open(t)); !errors.Is(err, broken) {
			t.Error(err)
		}
	}
	for d, rows := range map[sqlguard.Dialect][][]driver.Value{
		sqlguard.MySQL: {{"MyISAM", "NO"}, {"Aria", nil}, nil}, sqlguard.SQLite: {{int64(2)}, nil},
	} {
		for _, row := range rows {
			if err := newGuard(t, sqlguard.Config{Dialect: d}).Migrate(t.Context(), (&fake{row: row}).open(t)); err == nil {
				t.Errorf("%v: a table guards nothing by %v, and Migrate takes it", d, row)
			}
		}
	}
}

// A Guard whose New failed, and that was used all the same, admits nothing and says why.
func TestGuardThatNewDidNotMake(t *testing.T) {
	t.Parallel()
	for _, g := range []*sqlguard.Guard{nil, {}} {
		if s := g.Schema(); s != nil {
			t.Errorf("Schema: %q", s)
		}
		_, pruned := g.Prune(t.Context(), nil, token)
		for name, err := range map[string]error{
			"Admit":   g.Admit(t.Context(), &sql.Tx{}, token),
			"Gate":    g.Gate(nil).Admit(t.Context(), token),
			"Migrate": g.Migrate(t.Context(), nil),
			"Prune":   pruned,
		} {
			if err == nil || !strings.Contains(err.Error(), "the Guard was not made by New") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
