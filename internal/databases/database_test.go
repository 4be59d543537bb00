package databases_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	_ "modernc.org/sqlite"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/sqlguard"
)

var realMySQL = flag.String("mysql", "", "DSN of a MySQL to test with, beside MariaDB")

// A way is one to reach a database: another driver, or another setting of one.
type way struct {
	name    string
	dialect sqlguard.Dialect
	server  bool // where transactions wait for each other, and the server tells
	open    func(tb testing.TB) *database
}

// A database is of one test, with tables of its own and nothing in them.
type database struct {
	way
	*sql.DB
	dsn    string                                                                 // of SQLite: the file
	native func(ctx context.Context, iso sql.IsolationLevel) (transaction, error) // begins, if not database/sql does
	reopen func(tb testing.TB) *sql.DB
	guard  *sqlguard.Guard
	config *pgx.ConnConfig // if it is pgx

	waiting string // counts the transactions that wait for a lock
	session string // tells the id of the connection
	kill    string // ends the connection with that id
}

// A transaction is one of database/sql or of pgx.
type transaction interface {
	admit(ctx context.Context, g *sqlguard.Guard, t fencing.Token) error
	update(ctx context.Context, g *sqlguard.RowGuard, t fencing.Token, key []any, set string, args ...any) error
	exec(ctx context.Context, query string, args ...any) error
	number(ctx context.Context, query string, args ...any) (int64, error)
	commit(ctx context.Context) error
	rollback()
	vanish() // the connection is cut in the middle; not of SQLite, see crash_test.go
}

var ways = []way{
	{name: "sqlite", dialect: sqlguard.SQLite, open: sqlite("_pragma=journal_mode(WAL)")},
	{name: "sqlite immediate", dialect: sqlguard.SQLite, open: sqlite("_pragma=journal_mode(WAL)&_txlock=immediate")},
	{name: "sqlite without WAL", dialect: sqlguard.SQLite, open: sqlite("_pragma=journal_mode(DELETE)&_txlock=immediate")},
	{name: "postgres by pgx", dialect: sqlguard.Postgres, server: true, open: byPgx(pgx.QueryExecModeCacheStatement)},
	{name: "postgres by pgx's simple protocol", dialect: sqlguard.Postgres, server: true, open: byPgx(pgx.QueryExecModeSimpleProtocol)},
	{name: "postgres by pgx, native", dialect: sqlguard.Postgres, server: true, open: native},
	{name: "postgres by pq", dialect: sqlguard.Postgres, server: true, open: byPq},
	{name: "mariadb", dialect: sqlguard.MySQL, server: true, open: maria("")},
	{name: "mariadb counts found rows", dialect: sqlguard.MySQL, server: true, open: maria("clientFoundRows=true")},
	{name: "mariadb interpolates", dialect: sqlguard.MySQL, server: true, open: maria("interpolateParams=true&sql_mode=%27ANSI,NO_BACKSLASH_ESCAPES%27")},
	{name: "mariadb is lax", dialect: sqlguard.MySQL, server: true, open: maria("sql_mode=%27%27&charset=latin1&clientFoundRows=true&interpolateParams=true")},
	{name: "mariadb with snapshots", dialect: sqlguard.MySQL, server: true, open: maria("innodb_snapshot_isolation=ON")}, // as from 11.6 on
	{name: "mysql", dialect: sqlguard.MySQL, server: true, open: theMySQL("")},
	{name: "mysql counts found rows", dialect: sqlguard.MySQL, server: true, open: theMySQL("clientFoundRows=true&interpolateParams=true")},
}

// each runs a test for every way that does.
func each(t *testing.T, does func(way) bool, test func(t *testing.T, db *database)) {
	for _, w := range ways {
		if does != nil && !does(w) {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			test(t, w.create(t))
		})
	}
}

func onServers(w way) bool { return w.server }

// create opens a database with the table of marks, and one of effects.
func (w way) create(tb testing.TB) *database {
	tb.Helper()
	db := w.open(tb)
	db.way = w
	var err error
	if db.guard, err = sqlguard.New(sqlguard.Config{Dialect: w.dialect}); err != nil {
		tb.Fatal(err)
	}
	if err := db.guard.Migrate(tb.Context(), db.DB); err != nil {
		tb.Fatal(err)
	}
	id := map[sqlguard.Dialect]string{
		sqlguard.Postgres: "bigserial", sqlguard.MySQL: "bigint AUTO_INCREMENT", sqlguard.SQLite: "integer",
	}[w.dialect]
	db.must(tb, "CREATE TABLE effects (id "+id+" PRIMARY KEY, k varchar(2048) NOT NULL, effect varchar(200) NOT NULL)")
	return db
}

func (db *database) must(tb testing.TB, query string, args ...any) {
	tb.Helper()
	if _, err := db.ExecContext(tb.Context(), db.placeholders(query), args...); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
}

// placeholders are ? in these tests.
func (w way) placeholders(query string) string {
	if w.dialect != sqlguard.Postgres {
		return query
	}
	for n := 1; strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", fmt.Sprintf("$%d", n), 1)
	}
	return query
}

// write is what users do: admit, have the effect, commit.
func (db *database) write(ctx context.Context, t fencing.Token, effect string) error {
	return db.transact(ctx, sql.LevelDefault, func(tx transaction) error { return db.admitAndInsert(ctx, tx, t, effect) })
}

func (db *database) transact(ctx context.Context, iso sql.IsolationLevel, do func(tx transaction) error) error {
	tx, err := db.begin(ctx, iso)
	if err != nil {
		return err
	}
	defer tx.rollback()
	if err := do(tx); err != nil {
		return err
	}
	if err := tx.commit(ctx); err != nil {
		return fmt.Errorf("%w: %w", fencing.ErrUnknown, err)
	}
	return nil
}

func (db *database) admitAndInsert(ctx context.Context, tx transaction, t fencing.Token, effect string) error {
	if err := tx.admit(ctx, db.guard, t); err != nil {
		return err
	}
	return db.insert(ctx, tx, t, effect)
}

// insert is the effect. Ids are given out under the lock of the mark, so they tell
// the order.
func (db *database) insert(ctx context.Context, tx transaction, t fencing.Token, effect string) error {
	return tx.exec(ctx, db.placeholders("INSERT INTO effects (k, effect) VALUES (?, ?)"), hex.EncodeToString([]byte(t.Key)), effect)
}

func (db *database) effects(ctx context.Context, key string) ([]string, error) {
	rows, err := db.QueryContext(ctx, db.placeholders("SELECT effect FROM effects WHERE k = ? ORDER BY id"), hex.EncodeToString([]byte(key)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []string
	for rows.Next() {
		var effect string
		if err := rows.Scan(&effect); err != nil {
			return nil, err
		}
		all = append(all, effect)
	}
	return all, rows.Err()
}

// sqlTransaction is on a connection of its own, so that it can be cut.
type sqlTransaction struct {
	*sql.Tx
	conn *sql.Conn
	db   *database
	id   int64
}

func (db *database) begin(ctx context.Context, iso sql.IsolationLevel) (transaction, error) {
	if db.native != nil {
		return db.native(ctx, iso)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	tx := &sqlTransaction{conn: conn, db: db}
	if db.session != "" {
		err = conn.QueryRowContext(ctx, db.session).Scan(&tx.id)
	}
	if err == nil {
		tx.Tx, err = conn.BeginTx(ctx, &sql.TxOptions{Isolation: iso})
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return tx, nil
}

func (tx *sqlTransaction) admit(ctx context.Context, g *sqlguard.Guard, t fencing.Token) error {
	return g.Admit(ctx, tx.Tx, t)
}

func (tx *sqlTransaction) update(ctx context.Context, g *sqlguard.RowGuard, t fencing.Token, key []any, set string, args ...any) error {
	return g.Update(ctx, tx.Tx, t, key, set, args...)
}

func (tx *sqlTransaction) exec(ctx context.Context, query string, args ...any) error {
	_, err := tx.ExecContext(ctx, query, args...)
	return err
}

func (tx *sqlTransaction) number(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = tx.QueryRowContext(ctx, query, args...).Scan(&n)
	return n, err
}

func (tx *sqlTransaction) commit(context.Context) error { return tx.Commit() }

func (tx *sqlTransaction) rollback() {
	_ = tx.Rollback()   // nothing after a commit
	_ = tx.conn.Close() // given back to the pool already, if it was cut
}

func (tx *sqlTransaction) vanish() {
	if _, err := tx.db.Exec(fmt.Sprintf(tx.db.kill, tx.id)); err != nil {
		panic(err) // else what follows waits for ever
	}
	tx.rollback()
}

type pgxTransaction struct {
	pgx.Tx
	conn *pgx.Conn
}

func (tx *pgxTransaction) admit(ctx context.Context, g *sqlguard.Guard, t fencing.Token) error {
	return sqlguard.AdmitPgx(ctx, g, tx.Tx, t)
}

func (tx *pgxTransaction) update(ctx context.Context, g *sqlguard.RowGuard, t fencing.Token, key []any, set string, args ...any) error {
	return sqlguard.UpdatePgx(ctx, g, tx.Tx, t, key, set, args...)
}

func (tx *pgxTransaction) exec(ctx context.Context, query string, args ...any) error {
	_, err := tx.Exec(ctx, query, args...)
	return err
}

func (tx *pgxTransaction) number(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = tx.QueryRow(ctx, query, args...).Scan(&n)
	return n, err
}

func (tx *pgxTransaction) commit(ctx context.Context) error { return tx.Commit(ctx) }

func (tx *pgxTransaction) rollback() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = tx.Rollback(ctx)
	_ = tx.conn.Close(ctx)
}

func (tx *pgxTransaction) vanish() {
	_ = tx.conn.PgConn().Conn().Close() // the socket
	tx.rollback()
}

var names atomic.Int64

// name is one that no other test uses.
func name() string { return fmt.Sprintf("t%d_%d", names.Add(1), time.Now().UnixNano()) }

// opened has the pool closed when the test ends.
func opened(tb testing.TB, db *sql.DB, err error) *sql.DB {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func sqlite(parameters string) func(tb testing.TB) *database {
	return func(tb testing.TB) *database {
		file := filepath.Join(tb.TempDir(), "db")
		db := &database{dsn: "file:" + file + "?_pragma=busy_timeout(30000)&" + parameters}
		db.reopen = func(tb testing.TB) *sql.DB {
			pool, err := sql.Open("sqlite", db.dsn)
			return opened(tb, pool, err)
		}
		db.DB = db.reopen(tb)
		return db
	}
}

// pgConfig has a schema of its own for the test, whose name the server shows.
func pgConfig(tb testing.TB, dir string) (*pgx.ConnConfig, string) {
	tb.Helper()
	schema := name()
	dsn := fmt.Sprintf("host=%s user=%s dbname=postgres sslmode=disable search_path=%s application_name=%[3]s", dir, superuser, schema)
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	db := stdlib.OpenDB(*cfg)
	if _, err := db.Exec("CREATE SCHEMA " + schema); err != nil {
		tb.Fatal(err)
	}
	_ = db.Close()
	return cfg, dsn
}

func pgDatabase(tb testing.TB, reopen func(tb testing.TB) *sql.DB) *database {
	return &database{
		DB: reopen(tb), reopen: reopen,
		waiting: "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = current_setting('application_name')",
		session: "SELECT pg_backend_pid()",
		kill:    "SELECT pg_terminate_backend(%d)",
	}
}

func byPgx(mode pgx.QueryExecMode) func(tb testing.TB) *database {
	return func(tb testing.TB) *database {
		cfg, _ := pgConfig(tb, postgres.start(tb))
		cfg.DefaultQueryExecMode = mode
		db := pgDatabase(tb, func(tb testing.TB) *sql.DB { return opened(tb, stdlib.OpenDB(*cfg), nil) })
		db.config = cfg
		return db
	}
}

func byPq(tb testing.TB) *database {
	_, dsn := pgConfig(tb, postgres.start(tb))
	return pgDatabase(tb, func(tb testing.TB) *sql.DB {
		pool, err := sql.Open("postgres", dsn)
		return opened(tb, pool, err)
	})
}

func native(tb testing.TB) *database {
	cfg, _ := pgConfig(tb, postgres.start(tb))
	db := pgDatabase(tb, func(tb testing.TB) *sql.DB { return opened(tb, stdlib.OpenDB(*cfg), nil) })
	levels := map[sql.IsolationLevel]pgx.TxIsoLevel{
		sql.LevelReadUncommitted: pgx.ReadUncommitted, sql.LevelReadCommitted: pgx.ReadCommitted,
		sql.LevelRepeatableRead: pgx.RepeatableRead, sql.LevelSerializable: pgx.Serializable,
	}
	db.native = func(ctx context.Context, iso sql.IsolationLevel) (transaction, error) {
		conn, err := pgx.ConnectConfig(ctx, cfg)
		if err != nil {
			return nil, err
		}
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: levels[iso]})
		if err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
		return &pgxTransaction{tx, conn}, nil
	}
	return db
}

func mariaDSN(dir, schema, parameters string) string {
	return fmt.Sprintf("root@unix(%s/socket)/%s?%s", dir, schema, parameters)
}

// openMySQL opens a pool, with its connections made by dial if it is set.
func openMySQL(dsn string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.Logger = &mysql.NopLogger{} // connections that tests have killed
	cfg.DialFunc = dial
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func maria(parameters string) func(tb testing.TB) *database {
	return func(tb testing.TB) *database {
		return mysqlDatabase(tb, mariaDSN(mariadb.start(tb), "", parameters))
	}
}

func theMySQL(parameters string) func(tb testing.TB) *database {
	return func(tb testing.TB) *database {
		if *realMySQL == "" {
			tb.Skip("there is no MySQL to test with: give its DSN as -mysql")
		}
		separator := "?"
		if strings.Contains(*realMySQL, "?") {
			separator = "&"
		}
		return mysqlDatabase(tb, *realMySQL+separator+parameters)
	}
}

func mysqlDatabase(tb testing.TB, dsn string) *database {
	tb.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	root, err := openMySQL(dsn, nil)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.DBName = name()
	if _, err := root.Exec("CREATE DATABASE " + cfg.DBName); err != nil {
		tb.Fatal(err)
	}
	_ = root.Close()
	reopen := func(tb testing.TB) *sql.DB {
		pool, err := openMySQL(cfg.FormatDSN(), nil)
		return opened(tb, pool, err)
	}
	return &database{
		DB: reopen(tb), reopen: reopen, dsn: cfg.FormatDSN(),
		waiting: "SELECT COUNT(*) FROM information_schema.innodb_trx JOIN information_schema.processlist ON id = trx_mysql_thread_id WHERE trx_state = 'LOCK WAIT' AND db = DATABASE()",
		session: "SELECT CONNECTION_ID()",
		kill:    "KILL %d",
	}
}
