package sqlguard

import (
	"context"

	"github.com/etcdclaims/claims/fencing"
)

// These are functions because methods cannot have type parameters.

// AdmitPgx is Guard.Admit for a pgx transaction.
func AdmitPgx[T pgxTag, R pgxRow](ctx context.Context, g *Guard, tx PgxTx[T, R], t fencing.Token) error {
	return g.admit(ctx, pgxRunner[T, R]{tx}, t)
}

// UpdatePgx is RowGuard.Update for a pgx transaction.
func UpdatePgx[T pgxTag, R pgxRow](
	ctx context.Context, g *RowGuard, tx PgxTx[T, R], t fencing.Token, key []any, set string, args ...any,
) error {
	return g.update(ctx, pgxRunner[T, R]{tx}, t, key, set, args)
}
