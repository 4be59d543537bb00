package billingdb

import (
	"context"

	"github.com/jackc/pgx/v5"
)

const createInvoice = `INSERT INTO invoices (id, account_id, amount) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING`

// CreateInvoice adds an invoice, unless there is one of this id.
func (q *Queries) CreateInvoice(ctx context.Context, arg Invoice) error {
	_, err := q.db.Exec(ctx, createInvoice, arg.ID, arg.AccountID, arg.Amount)
	return err
}

const getBalance = `SELECT balance FROM accounts WHERE id = $1`

// GetBalance returns the balance of an account.
func (q *Queries) GetBalance(ctx context.Context, id string) (balance int64, err error) {
	err = q.db.QueryRow(ctx, getBalance, id).Scan(&balance)
	return balance, err
}

const setBalance = `UPDATE accounts SET balance = $2 WHERE id = $1`

// SetBalance sets the balance of an account.
func (q *Queries) SetBalance(ctx context.Context, id string, balance int64) error {
	_, err := q.db.Exec(ctx, setBalance, id, balance)
	return err
}

const listAccounts = `SELECT id FROM accounts ORDER BY id`

// ListAccounts returns the ids of all accounts.
func (q *Queries) ListAccounts(ctx context.Context) ([]string, error) {
	rows, err := q.db.Query(ctx, listAccounts)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

const listOpenInvoices = `SELECT id, account_id, amount, paid FROM invoices WHERE account_id = $1 AND NOT paid ORDER BY id`

// ListOpenInvoices returns the invoices of an account that are not paid.
func (q *Queries) ListOpenInvoices(ctx context.Context, accountID string) ([]Invoice, error) {
	rows, err := q.db.Query(ctx, listOpenInvoices, accountID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Invoice])
}

const chargeInvoice = `WITH charge AS (INSERT INTO charges (invoice_id, amount) VALUES ($1, $2))
UPDATE invoices SET paid = true WHERE id = $1`

// ChargeInvoice adds a charge, and marks the invoice as paid.
func (q *Queries) ChargeInvoice(ctx context.Context, id string, amount int64) error {
	_, err := q.db.Exec(ctx, chargeInvoice, id, amount)
	return err
}

const getAudit = `SELECT
    (SELECT coalesce(sum(balance), 0) FROM accounts)::bigint AS balances,
    (SELECT coalesce(sum(amount), 0) FROM charges)::bigint AS charged,
    (SELECT count(*) FROM invoices) AS invoices,
    (SELECT count(*) FROM invoices WHERE NOT paid) AS open,
    (SELECT count(*) FROM invoices i WHERE paid AND 1 <> (SELECT count(*) FROM charges WHERE invoice_id = i.id)) AS wrong`

// Audit is a row of getAudit. Wrong counts the paid invoices that were not charged
// once.
type Audit struct{ Balances, Charged, Invoices, Open, Wrong int64 }

// GetAudit sums all up.
func (q *Queries) GetAudit(ctx context.Context) (Audit, error) {
	rows, err := q.db.Query(ctx, getAudit)
	if err != nil {
		return Audit{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Audit])
}
