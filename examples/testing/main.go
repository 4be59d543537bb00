// Testing is a service that charges invoices, each once, in as many processes as
// one likes: and above all its test, service_test.go, which loses replies,
// leases and the network of such a process, in virtual time.
//
//	go test -v ./examples/testing                     # what a user's own tests can look like
//	go run ./examples/testing                         # the service, on an etcd of its own
//	go run ./examples/testing -endpoints http://localhost:2379
//
// The service is service.go: it begins work (work.Runner.TryBegin), does what it has
// to do outside of etcd under a context that ends with the claim (Claim.Bind), and
// completes the work together with its result (Work.Complete). The test uses only
// what everybody can import: testing/synctest, package claimtest, and goleak.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/examples/demoetcd"
)

const invoices = 20

func main() {
	endpoints := flag.String("endpoints", "", "etcd to use, as URLs separated by commas (default one in this process)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := run(ctx, *endpoints, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "testing: %v\n", err)
		os.Exit(1)
	}
}

// run lets three services share invoices, until all are paid.
func run(ctx context.Context, endpoints string, out io.Writer) (err error) {
	at, stop, err := demoetcd.Open(endpoints)
	if err != nil {
		return err
	}
	defer stop()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: at, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()

	root := "/billing/" + rand.Text() + "/" // keeps out of the way of what is there
	defer func() {
		tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_, derr := etcd.Delete(tidy, root, clientv3.WithPrefix())
		err = errors.Join(err, derr)
	}()
	for i := range invoices {
		if _, err := etcd.Put(ctx, fmt.Sprintf("%sopen/%02d", root, i), fmt.Sprintf("%d EUR", 10+i)); err != nil {
			return err
		}
	}

	working, done := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer done()
	bank := &printingBank{out: out, paid: make(map[string]bool)}
	for _, name := range []string{"one", "two", "three"} {
		claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: root + "claims/", Owner: name, Logger: zap.Must(zap.NewProduction())})
		if err != nil {
			return err
		}
		works, err := work.New(claims, work.Config{Retention: time.Minute})
		if err != nil {
			return err
		}
		b := &Billing{
			Works: works, Etcd: etcd, Bank: bank, Prefix: root, Every: time.Second,
			Log: slog.New(slog.NewTextHandler(out, nil)).With("process", name),
		}
		wg.Go(func() {
			b.Run(working)
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_ = claims.Close(closing) // what it cannot release ends with its lease
		})
	}
	for {
		resp, err := etcd.Get(ctx, root+"paid/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		if resp.Count == invoices {
			return bank.report()
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// printingBank prints what it is asked for.
type printingBank struct {
	mu   sync.Mutex
	out  io.Writer
	paid map[string]bool
	said int
}

// Charge implements Bank.
func (b *printingBank) Charge(ctx context.Context, key, amount string) (string, error) {
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said++
	b.paid[key] = true
	_, err := fmt.Fprintf(b.out, "bank: %s for %s\n", amount, key)
	return key, err
}

func (b *printingBank) report() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.said != invoices || len(b.paid) != invoices {
		return fmt.Errorf("%d charges for %d invoices, want %d", b.said, len(b.paid), invoices)
	}
	_, err := fmt.Fprintf(b.out, "%d invoices, each charged once\n", len(b.paid))
	return err
}
