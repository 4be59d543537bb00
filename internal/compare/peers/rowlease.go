package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/etcdclaims/claims/internal/compare/load"
	"github.com/jackc/pgx/v5/pgxpool"
)

// rowLease is what is written by hand where there is a Postgres: a row for each
// key, with its owner, when that ends, and a fence that rises with each owner.
type rowLease struct{ pool *pgxpool.Pool }

const (
	createLeases = `create table if not exists lease (
	key text primary key, owner text not null, fence bigint not null, ends timestamptz not null
) with (fillfactor = 50)`

	takeLease = `insert into lease as l (key, owner, fence, ends) values ($1, $2, 1, now() + $3::interval)
on conflict (key) do update set owner = excluded.owner, fence = l.fence + 1, ends = excluded.ends
where l.owner = '' or l.ends < now() returning fence`

	giveLease = `update lease set owner = '' where key = $1 and fence = $2`
)

// rowConnections is what served it best on two cores: Postgres has a process for
// each.
const rowConnections = 64

func openRowLease(ctx context.Context, address string) (rowLease, error) {
	pool, err := pgxpool.New(ctx, fmt.Sprintf("postgres://%s@%s/postgres?sslmode=disable&pool_max_conns=%d",
		load.PostgresUser, address, rowConnections))
	if err != nil {
		return rowLease{}, err
	}
	if _, err := pool.Exec(ctx, createLeases); err != nil {
		pool.Close()
		return rowLease{}, err
	}
	return rowLease{pool}, nil
}

func (r rowLease) cycle(ctx context.Context, key string) error {
	owner := fmt.Sprintf("%016x", rand.Uint64())
	var fence int64
	if err := r.pool.QueryRow(ctx, takeLease, key, owner, ttl).Scan(&fence); err != nil {
		return fmt.Errorf("taking the lease: %w", err) // of no row too: it is held
	}
	tag, err := r.pool.Exec(ctx, giveLease, key, fence)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("the lease of %s was not held", key)
	}
	return err
}

func (r rowLease) close() { r.pool.Close() }
