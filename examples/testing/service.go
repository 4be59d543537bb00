package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
)

// Bank moves money. The key names the charge: a bank that has seen it does not
// charge again but returns the same receipt, as payment providers do.
type Bank interface {
	Charge(ctx context.Context, key, amount string) (receipt string, err error)
}

// Billing charges open invoices, beside any number of processes that do the
// same. Invoices are keys below Prefix: open/<id> has the amount, and when it was
// charged there is paid/<id> with the receipt instead.
type Billing struct {
	Works  *work.Runner
	Etcd   *clientv3.Client
	Bank   Bank
	Prefix string
	Every  time.Duration // from one look for open invoices to the next
	Log    *slog.Logger
}

// Run charges invoices until ctx ends.
func (b *Billing) Run(ctx context.Context) {
	tick := time.NewTicker(b.Every)
	defer tick.Stop()
	for {
		if err := b.chargeOpen(ctx); err != nil && ctx.Err() == nil {
			b.Log.Warn("looking for open invoices", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// chargeOpen charges what is open now.
func (b *Billing) chargeOpen(ctx context.Context) error {
	open, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resp, err := b.Etcd.Get(open, b.Prefix+"open/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range resp.Kvs {
		id := strings.TrimPrefix(string(kv.Key), b.Prefix+"open/")
		if err := b.charge(ctx, id, string(kv.Value)); err != nil && ctx.Err() == nil {
			b.Log.Warn("charging", "invoice", id, "err", err)
		}
	}
	return nil
}

// charge charges one invoice, unless another process does or did.
func (b *Billing) charge(ctx context.Context, id, amount string) error {
	job, err := b.Works.TryBegin(ctx, "invoice/"+id)
	switch {
	case errors.Is(err, etcdclaims.ErrHeld), errors.Is(err, work.ErrDone),
		errors.Is(err, work.ErrBackoff), errors.Is(err, work.ErrDead):
		return nil
	case err != nil:
		return err
	}
	if last, ok := job.Previous(); ok {
		b.Log.Info("charging again", "invoice", id, "attempt", job.Attempt(), "after", last.Owner, "state", last.State)
	}

	// The charge is given up when the service stops, and before another process
	// can have the invoice.
	charging, cancel := job.Bind(ctx)
	defer cancel()
	receipt, err := b.Bank.Charge(charging, "invoice/"+id, amount)

	// What became of it is recorded even if the service is stopping.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err != nil && ctx.Err() != nil {
		return job.Release(ending) // its own doing: the attempt does not count
	}
	if err == nil {
		// Paid and no longer open, if and only if this process has the invoice yet.
		err = job.Complete(ending, clientv3.OpPut(b.Prefix+"paid/"+id, receipt), clientv3.OpDelete(b.Prefix+"open/"+id))
	}
	if err == nil || errors.Is(err, etcdclaims.ErrLost) || errors.Is(err, etcdclaims.ErrUnknown) {
		return err // there is nothing left to end: if another has to, it will
	}
	_, ferr := job.Fail(ending, err)
	return errors.Join(err, ferr)
}
