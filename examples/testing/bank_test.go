package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// fakeBank takes its time for each charge, unless it is told to stop.
type fakeBank struct {
	takes time.Duration

	mu   sync.Mutex
	all  []*charging
	paid map[string]string // receipts
}

// charging is one call of Charge.
type charging struct {
	key, by     string
	from, until time.Time
	moved       bool // money
}

func (c charging) String() string {
	return fmt.Sprintf("%s by %s from %s to %s", c.key, c.by, c.from.Format(time.TimeOnly), c.until.Format(time.TimeOnly))
}

// bankFor is the bank as one process sees it.
type bankFor struct {
	bank *fakeBank
	by   string
}

func (b bankFor) Charge(ctx context.Context, key, amount string) (string, error) {
	bank := b.bank
	c := &charging{key: key, by: b.by, from: time.Now()}
	bank.mu.Lock()
	bank.all = append(bank.all, c)
	bank.mu.Unlock()
	var err error
	select {
	case <-time.After(bank.takes):
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	bank.mu.Lock()
	defer bank.mu.Unlock()
	c.until = time.Now()
	if err != nil {
		return "", err
	}
	if bank.paid[key] == "" {
		bank.paid[key], c.moved = fmt.Sprintf("%s received, number %d", amount, len(bank.paid)+1), true
	}
	return bank.paid[key], nil
}

// charges returns the calls for an invoice, in their order.
func (b *fakeBank) charges(id string) []charging {
	b.mu.Lock()
	defer b.mu.Unlock()
	var calls []charging
	for _, c := range b.all {
		if c.key == "invoice/"+id {
			calls = append(calls, *c)
		}
	}
	return calls
}

// moved returns how often money was moved for an invoice.
func (b *fakeBank) moved(id string) int {
	n := 0
	for _, c := range b.charges(id) {
		if c.moved {
			n++
		}
	}
	return n
}
