package databases_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/sqlguard"
	"github.com/etcdclaims/claims/internal/dbserver"
)

// A pair is a Postgres and a replica of it, with a table of marks and one of effects.
type pair struct {
	primary, replica *server
	before, after    *sql.DB // of the primary, and of the replica
	guard            *sqlguard.Guard
}

// newPair starts both. A synchronous replica has each commit before its client has the reply.
func newPair(t *testing.T, synchronous bool) *pair {
	t.Helper()
	const name = "replica"
	settings := []string{"-c", "listen_addresses="}
	if synchronous {
		settings = append(settings, "-c", "synchronous_standby_names="+name)
	}
	p := &pair{primary: &server{ready: dbserver.PostgresReady}, replica: &server{ready: dbserver.PostgresReady}}
	p.primary.command = func(dir string) (*exec.Cmd, error) {
		return dbserver.Postgres(context.Background(), dir, superuser, append(settings, "-c", "unix_socket_directories="+dir)...)
	}
	p.replica.command = func(dir string) (*exec.Cmd, error) {
		return dbserver.PostgresReplica(context.Background(), dir, p.primary.dir, superuser, name,
			"-c", "listen_addresses=", "-c", "unix_socket_directories="+dir)
	}
	open := func(s *server) *sql.DB {
		dir := s.start(t)
		t.Cleanup(func() {
			s.signal(syscall.SIGQUIT) // which waits for no client, and for no replica
			s.stop()
		})
		db, err := sql.Open("pgx", fmt.Sprintf("host=%s user=%s dbname=postgres sslmode=disable", dir, superuser))
		return opened(t, db, err)
	}
	p.before = open(p.primary)
	p.after = open(p.replica)
	var err error
	if p.guard, err = sqlguard.New(sqlguard.Config{Dialect: sqlguard.Postgres}); err != nil {
		t.Fatal(err)
	}
	if err := p.guard.Migrate(t.Context(), p.before); err != nil {
		t.Fatal(err)
	}
	p.must(t, p.before, "CREATE TABLE effects (fence bigint PRIMARY KEY)")
	p.await(t, "SELECT count(*) = 1 FROM pg_tables WHERE tablename = 'effects'")
	return p
}

func (p *pair) must(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// await waits until a query of the replica returns true.
func (p *pair) await(t *testing.T, query string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for is := false; !is; time.Sleep(10 * time.Millisecond) {
		if err := p.after.QueryRowContext(ctx, query).Scan(&is); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
}

// failOver ends the primary without its sending anything more, and promotes the replica.
func (p *pair) failOver(t *testing.T) {
	t.Helper()
	p.primary.signal(syscall.SIGQUIT)
	p.must(t, p.after, "SELECT pg_promote()")
}

// write admits a fence, and has an effect under it.
func (p *pair) write(ctx context.Context, db *sql.DB, fence int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := p.guard.Admit(ctx, tx, fencing.Token{Key: "k", Fence: fence}); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO effects (fence) VALUES ($1)", fence); err != nil {
		return err
	}
	return tx.Commit()
}

// After a failover to a synchronous replica no fence is forgotten that a caller was told of, and no effect under it.
func TestFailoverToSynchronousReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t, true)
	var newest atomic.Int64
	var mu sync.Mutex
	var committed []int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				fence := newest.Add(1)
				err := p.write(t.Context(), p.before, fence)
				if _, refused := fencing.RefusalOf(err); refused {
					continue // another was faster
				}
				if err != nil {
					return // the primary has died
				}
				mu.Lock()
				committed = append(committed, fence)
				mu.Unlock()
			}
		})
	}
	p.await(t, "SELECT count(*) > 100 FROM effects")
	p.failOver(t)
	wg.Wait()
	var last int64
	for _, fence := range committed {
		last = max(last, fence)
		n := 0
		if err := p.after.QueryRowContext(t.Context(), "SELECT count(*) FROM effects WHERE fence = $1", fence).Scan(&n); err != nil || n != 1 {
			t.Errorf("fence %d was committed, and has %d effects, %v", fence, n, err)
		}
	}
	var stale *fencing.StaleError
	if err := p.write(t.Context(), p.after, last-1); !errors.As(err, &stale) || stale.Newest < last {
		t.Errorf("after fence %d: %v", last, err)
	}
	if err := p.write(t.Context(), p.after, newest.Load()+1); err != nil {
		t.Error(err)
	}
}

// While a synchronous replica is down, a commit has no result. The gate does not return success.
func TestSynchronousReplicaIsDown(t *testing.T) {
	t.Parallel()
	p := newPair(t, true)
	p.replica.signal(syscall.SIGQUIT)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := p.guard.Gate(p.before).Admit(ctx, fencing.Token{Key: "k", Fence: 2}); !errors.Is(err, fencing.ErrUnknown) {
		t.Error(err)
	}
}

// An asynchronous replica can lack the newest fences. After a failover to it a former owner is admitted until the
// present one has sealed the resource anew.
func TestFailoverToAsynchronousReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t, false)
	if err := p.write(t.Context(), p.before, 1); err != nil {
		t.Fatal(err)
	}
	p.await(t, "SELECT count(*) = 1 FROM effects")
	p.must(t, p.after, "ALTER SYSTEM SET primary_conninfo = ''") // from here on the replica lags
	p.must(t, p.after, "SELECT pg_reload_conf()")
	p.await(t, "SELECT count(*) = 0 FROM pg_stat_wal_receiver")
	if err := p.write(t.Context(), p.before, 3); err != nil {
		t.Fatal(err)
	}
	p.failOver(t)
	if err := p.write(t.Context(), p.after, 2); err != nil {
		t.Errorf("the fence that was lost: %v", err)
	}
	if err := p.guard.Gate(p.after).Admit(t.Context(), fencing.Token{Key: "k", Fence: 3}); err != nil {
		t.Error(err)
	}
	if err := p.guard.Gate(p.after).Admit(t.Context(), fencing.Token{Key: "k", Fence: 2}); !stale(err, 3) {
		t.Errorf("after the seal: %v", err)
	}
}
