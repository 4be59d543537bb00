package sqlguard

import (
	"context"

	"github.com/etcdclaims/claims/fencing"
)

// These are functions, since methods have no type parameters.

// AdmitPgx is Guard.Admit in a transaction of pgx.
func AdmitPgx[T pgxTag, R pgxRow](ctx context.Context, g *Guard, tx PgxTx[T, R], t fencing.Token) error {
	return g.admit(ctx, pgxRunner[T, R]{tx}, t)
}

// UpdatePgx is RowGuard.Update in a transaction of pgx.
func UpdatePgx[T pgxTag, R pgxRow](ctx context.Context, g *RowGuard, tx PgxTx[T, R], t fencing.Token, key Key, set string, args ...any) error {
	return g.update(ctx, pgxRunner[T, R]{tx}, t, key, set, args)
}
