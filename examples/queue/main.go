// Queue ships orders by three workers that share a queue. Two producers enqueue the same orders,
// and each order is in the queue once. Some orders need a second attempt. One can never be
// shipped, and becomes a dead letter.
//
//	go run ./examples/queue # in an etcd of its own
//	go run ./examples/queue -endpoints http://localhost:2379
//
// Here the workers share a process. In production each process of a service has its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/examples/demoetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const orders = 30

// Order is what the queue carries.
type Order struct {
	ID      string
	Address string
}

func main() { demoetcd.Main("queue", run) }

// process is what each process of the service would have.
type process struct {
	name   string
	claims *etcdclaims.Client
	queue  *queue.Queue
	orders queue.Typed[Order]
	prefix string // of all keys
	out    io.Writer
}

func run(ctx context.Context, etcd *clientv3.Client, prefix string, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all []*process
	var running sync.WaitGroup
	failed := make([]error, 3)
	for i := range failed {
		p, err := open(etcd, fmt.Sprint("worker-", i+1), prefix, out)
		if err != nil {
			return err
		}
		defer p.claims.Close(context.WithoutCancel(ctx)) // closes the queue, too
		all = append(all, p)
	}
	for _, p := range all[:2] {
		if err := p.produce(ctx); err != nil {
			return err
		}
	}
	for i, p := range all {
		running.Go(func() {
			failed[i] = p.queue.Work(ctx, queue.WorkerConfig{Concurrency: 2, Handler: p.orders.Handler(p.ship)})
		})
	}
	err := all[0].settle(ctx, etcd)
	stop() // workers finish what they have in hand
	running.Wait()
	return errors.Join(append(failed, err)...)
}

func open(etcd *clientv3.Client, name, prefix string, out io.Writer) (*process, error) {
	p := &process{name: name, prefix: prefix, out: out}
	var err error
	p.claims, err = etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix + "claims/", Owner: name, Logger: demoetcd.Logger()})
	if err != nil {
		return nil, err
	}
	p.queue, err = queue.New(p.claims, queue.Config{
		Name: "orders", Backoff: etcdclaims.ExponentialBackoff(500*time.Millisecond, time.Minute), Logger: demoetcd.Logger(),
	})
	p.orders = queue.Of[Order](p.queue)
	return p, err
}

// produce enqueues all orders. Their ids keep two producers from enqueuing an order twice.
func (p *process) produce(ctx context.Context) error {
	var all []Order
	for i := range orders {
		all = append(all, Order{ID: fmt.Sprintf("order-%02d", i), Address: fmt.Sprint("Street ", i%10)})
	}
	added, err := p.orders.EnqueueAll(ctx, all, func(o Order) []queue.ItemOption { return []queue.ItemOption{queue.ID(o.ID)} })
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.out, "%s enqueued %d of %d orders\n", p.name, added, orders)
	return err
}

// ship ends the item and records its effect in one transaction. Another worker can have the
// same order in hand if this one was frozen, but only one of them completes it.
func (p *process) ship(ctx context.Context, o Order, d *queue.Delivery) error {
	switch {
	case o.ID == "order-13":
		return etcdclaims.Permanent(errors.New("no such street")) // another attempt would fail, too
	case o.Address == "Street 7" && d.Attempt() == 1:
		return errors.New("nobody is at home") // another attempt follows
	}
	return d.Complete(ctx, clientv3.OpPut(p.prefix+"shipped/"+o.ID, p.name))
}

// settle waits until nothing is left to do. It returns an error if an order was lost.
func (p *process) settle(ctx context.Context, etcd *clientv3.Client) error {
	for {
		s, err := p.queue.Stats(ctx)
		if err != nil {
			return err
		}
		if s.Ready+s.Later+s.Taken == 0 {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	dead := 0
	for letter, err := range p.queue.DeadLetters(ctx) {
		if err != nil {
			return err
		}
		fmt.Fprintf(p.out, "dead letter %s after %d attempt: %s\n", letter.ID, letter.Attempts, letter.Why)
		dead++
	}
	resp, err := etcd.Get(ctx, p.prefix+"shipped/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "%d orders: %d shipped, %d dead letters\n", orders, len(resp.Kvs), dead)
	if len(resp.Kvs)+dead != orders {
		return errors.New("orders were lost")
	}
	for _, kv := range resp.Kvs {
		if kv.Version != 1 { // etcd counts how often a key was written
			return fmt.Errorf("%s was shipped %d times", kv.Key, kv.Version)
		}
	}
	return nil
}
