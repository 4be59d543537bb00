package main

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/examples/billing/billingdb"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/sqlguard"
)

const (
	providerTime = 500 * time.Millisecond // of a call to the payment provider
	databaseTime = 5 * time.Second        // at most, for a transaction
)

// A biller charges accounts, each under a claim on it.
type biller struct {
	setup
	pool    *pgxpool.Pool
	queries *billingdb.Queries
	claims  *etcdclaims.Client
	guard   *sqlguard.Guard
	tell    func(event)
}

// run charges all accounts again and again, until ctx ends.
func (b *biller) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := b.round(ctx)
		if err != nil && ctx.Err() == nil {
			log.Printf("%s: %v", b.Name, err) // etcd or Postgres is away, or a claim was lost
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (b *biller) round(ctx context.Context) error {
	accounts, err := b.queries.ListAccounts(ctx)
	if err != nil {
		return err
	}
	for _, account := range accounts {
		err := b.claims.TryRun(ctx, "account/"+account, func(ctx context.Context) error { return b.charge(ctx, account) })
		switch {
		case errors.Is(err, etcdclaims.ErrHeld): // another process charges it
		case errors.Is(err, fencing.ErrStale):
			b.tell(event{Kind: refused, Account: account})
		case err != nil:
			return err
		}
	}
	return nil
}

// charge charges the open invoices of an account. It has been in the service all along,
// with plain transactions.
func (b *biller) charge(ctx context.Context, account string) error {
	var balance int64
	var open []billingdb.Invoice
	// This transaction shuts out the owner before: what it reads stays true.
	err := b.transact(ctx, func(q *billingdb.Queries) (err error) {
		if balance, err = q.GetBalance(ctx, account); err != nil {
			return err
		}
		open, err = q.ListOpenInvoices(ctx, account)
		return err
	})
	if err != nil || len(open) == 0 {
		return err
	}
	b.tell(event{Kind: charging, Account: account})
	time.Sleep(providerTime)
	// The provider takes each invoice once, by its ID. What it has taken must be recorded,
	// even if ctx has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTime)
	defer cancel()
	return b.transact(ctx, func(q *billingdb.Queries) error {
		for _, invoice := range open {
			balance -= invoice.Amount
			if err := q.ChargeInvoice(ctx, invoice.ID, invoice.Amount); err != nil {
				return err
			}
		}
		return q.SetBalance(ctx, account, balance)
	})
}

// transact runs f in a transaction that first admits the token of the context.
func (b *biller) transact(ctx context.Context, f func(q *billingdb.Queries) error) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if token, ok := fencing.FromContext(ctx); ok && b.Guarded {
			if err := sqlguard.AdmitPgx(ctx, b.guard, tx, token); err != nil {
				return err
			}
		}
		return f(b.queries.WithTx(tx))
	})
}
