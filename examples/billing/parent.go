package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/examples/billing/billingdb"
	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/examples/demoproc"
)

// parent has the servers and the processes, sends orders, and makes the faults. What
// handle writes is read in conditions of workers.Until.
type parent struct {
	setup
	etcd     *demoetcd.Secured
	database database
	workers  demoproc.Group[event]
	addrs    sync.Map // by the names of processes
	charges  []event  // that began since the last fault
	late     []event  // that were refused
	orders   int      // acknowledged
}

func demonstrate(ctx context.Context, s setup, endpoints string) (err error) {
	if endpoints != "" {
		return errors.New("-endpoints: the example starts an etcd of its own, with certificates")
	}
	dir, err := os.MkdirTemp("", "billing")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left over is for the system to tidy up
	p := &parent{setup: s}
	if p.database.dir, err = os.MkdirTemp("", "pg"); err != nil { // Postgres is another user
		return err
	}
	defer func() { _ = os.RemoveAll(p.database.dir) }()
	if err := p.database.start(ctx); err != nil {
		return err
	}
	defer p.database.crash()
	if err := p.database.migrate(ctx); err != nil {
		return err
	}
	defer p.database.pool.Close()
	if p.etcd, err = startEtcd(ctx, dir); err != nil {
		return err
	}
	defer p.etcd.Stop()
	p.Etcd, p.Certificates, p.Postgres = p.etcd.Endpoint, dir, p.database.dsn()
	return p.play(ctx)
}

// play runs the service under faults, lets it finish, and audits the books.
func (p *parent) play(ctx context.Context) error {
	p.workers.Handle = p.handle
	defer p.workers.Kill()
	for i := range 3 {
		if err := p.start(fmt.Sprintf("billing-%d", i+1)); err != nil {
			return err
		}
	}
	ordering, stop := context.WithCancel(ctx)
	var customer sync.WaitGroup
	customer.Go(func() { p.order(ctx, ordering.Done()) })
	var err error
	for _, fault := range []func(context.Context, event) error{
		p.kill,
		p.freeze,
		func(context.Context, event) error {
			log.Printf("etcd restarts")
			p.etcd.Stop()
			return p.etcd.Start()
		},
		func(ctx context.Context, _ event) error {
			log.Printf("Postgres crashes and restarts")
			p.database.crash()
			return p.database.start(ctx)
		},
	} {
		var charge event
		if charge, err = p.charge(ctx); err == nil {
			err = fault(ctx, charge)
		}
		if err != nil {
			break
		}
	}
	stop()
	customer.Wait()
	if err != nil {
		return err
	}
	log.Printf("no more orders: waiting until all is charged")
	return p.audit(ctx)
}

func (p *parent) handle(e event) {
	switch e.Kind {
	case listening:
		p.addrs.Store(e.Process, e.Addr)
	case charging:
		p.charges = append(p.charges, e)
	case refused:
		log.Printf("%s: its late charge of %s is refused", e.Process, e.Account)
		p.late = append(p.late, e)
	}
}

func (p *parent) start(name string) error {
	s := p.setup
	s.Name = name
	_, err := p.workers.Start(name, s)
	return err
}

func (p *parent) process(name string) *demoproc.Process {
	return p.workers.Workers[slices.IndexFunc(p.workers.Workers, func(w *demoproc.Process) bool { return w.Name == name })]
}

// charge waits for a charge that began since the last fault, and returns the newest.
func (p *parent) charge(ctx context.Context) (newest event, err error) {
	err = p.workers.Until(ctx, "a charge", func() bool {
		if len(p.charges) == 0 {
			return false
		}
		newest, p.charges = p.charges[len(p.charges)-1], nil
		return true
	})
	return newest, err
}

func (p *parent) kill(_ context.Context, charge event) error {
	log.Printf("kill -9 of %s while it charges %s", charge.Process, charge.Account)
	p.process(charge.Process).Kill()
	return p.start("billing-4")
}

// freeze freezes a process while it charges, until another has charged the account. When
// it goes on, its write must be refused. On a slow machine a process may have written
// before it is frozen; then freeze freezes the next one.
func (p *parent) freeze(ctx context.Context, charge event) error {
	for {
		frozen := p.process(charge.Process)
		if err := frozen.Pause(); err != nil {
			return err
		}
		log.Printf("%s is frozen while it charges %s", charge.Process, charge.Account)
		err := p.workers.Until(ctx, "another owner of the account", func() bool {
			return slices.ContainsFunc(p.charges, func(e event) bool { return e.Account == charge.Account && e.Process != charge.Process })
		})
		time.Sleep(2 * providerTime) // until the other has written
		if err = errors.Join(err, frozen.Resume()); err != nil || !p.Guarded {
			return err
		}
		log.Printf("%s goes on", charge.Process)
		isRefused, deadline := false, time.Now().Add(5*time.Second)
		err = p.workers.Until(ctx, "its late write", func() bool {
			isRefused = slices.Contains(p.late, event{Process: charge.Process, Kind: refused, Account: charge.Account})
			return isRefused || time.Now().After(deadline)
		})
		if err != nil || isRefused {
			return err
		}
		log.Printf("%s had no late write", charge.Process)
		if charge, err = p.charge(ctx); err != nil {
			return err
		}
	}
}

// audit waits until all invoices are paid, ends the processes, and checks the books.
func (p *parent) audit(ctx context.Context) error {
	var books billingdb.Audit
	paid := func() (ok bool) {
		var err error
		books, err = billingdb.New(p.database.pool).GetAudit(ctx)
		return err == nil && books.Open == 0
	}
	if err := p.workers.Until(ctx, "the open invoices", paid); err != nil {
		return err
	}
	p.workers.CloseOrders()
	if err := p.workers.Until(ctx, "the processes to end", func() bool { return p.workers.Finished() && paid() }); err != nil {
		return err
	}
	log.Printf("%d orders; balances %d + charged %d of %d; %d invoices not charged once; %d late charges refused",
		p.orders, books.Balances, books.Charged, accounts*opening, books.Wrong, len(p.late))
	switch {
	case books.Balances+books.Charged != accounts*opening:
		return errors.New("money is gone")
	case books.Wrong != 0:
		return errors.New("an invoice was not charged exactly once")
	case books.Invoices != int64(p.orders):
		return fmt.Errorf("%d invoices for %d orders", books.Invoices, p.orders)
	}
	return nil
}

// order orders until it is stopped, each order until one of the processes has
// acknowledged it.
func (p *parent) order(ctx context.Context, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		amount := 1 + rand.IntN(9)
		path := fmt.Sprintf("/accounts/a%d/invoices/order-%d", 1+rand.IntN(accounts), p.orders)
		for ctx.Err() == nil && p.put(ctx, path, amount) != nil {
			time.Sleep(50 * time.Millisecond)
		}
		p.orders++
		time.Sleep(20 * time.Millisecond)
	}
}

// put sends an order to any process.
func (p *parent) put(ctx context.Context, path string, amount int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	addr, ok := p.addrs.Load(fmt.Sprintf("billing-%d", 1+rand.IntN(4)))
	if !ok {
		return errors.New("no such process yet")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+addr.(string)+path, bytes.NewBufferString(fmt.Sprintf(`{"amount": %d}`, amount)))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated {
		err = errors.New(resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}
