package work_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Work is done once, whichever process begins it, and its effect is written in the
// transaction that records it as done.
func Example() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(context.Background())

	works, err := work.New(claims, work.Config{})
	if err != nil {
		log.Fatal(err)
	}

	err = works.TryRun(ctx, "invoice/42", func(ctx context.Context, w *work.Work) error {
		// ... the work itself; ctx ends shortly before the claim does ...
		return w.Complete(ctx, clientv3.OpPut("/paid/42", "100 EUR"))
	})
	if err != nil && !errors.Is(err, etcdclaims.ErrHeld) && !errors.Is(err, work.ErrDone) {
		log.Fatal(err) // ErrHeld: another caller has the key or is in line; ErrDone: the work is done
	}
	paid, err := etcd.Get(ctx, "/paid/42")
	if err != nil {
		log.Fatal(err)
	}
	for _, kv := range paid.Kvs {
		fmt.Printf("paid: %s\n", kv.Value)
	}
	// Output: paid: 100 EUR
}

// exampleRunner returns a runner with a prefix of its own.
func exampleRunner(prefix string) (works *work.Runner, done func()) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix, Owner: "biller-1", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	works, err = work.New(claims, work.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return works, func() {
		_ = claims.Close(context.Background())
		_ = etcd.Close()
	}
}

// Run records the outcome of the function, and its next attempt.
func ExampleRunner_Run() {
	ctx := context.Background()
	works, done := exampleRunner("/example/runwork/")
	defer done()

	bill := func(ctx context.Context, w *work.Work) error {
		fmt.Println("attempt", w.Attempt())
		// The effect happens if and only if the work is done.
		return w.Complete(ctx, clientv3.OpPut("/billed/42", "100 EUR"))
	}
	for range 2 {
		err := works.Run(ctx, "bill/42", bill)
		fmt.Println(err == nil, errors.Is(err, work.ErrDone))
	}

	err := works.Run(ctx, "bill/43", func(context.Context, *work.Work) error {
		return etcdclaims.RetryAfter(errors.New("the bank is closed"), time.Hour)
	})
	var outcome *work.Error
	if errors.As(err, &outcome) {
		at, again := outcome.RetryAt()
		fmt.Println(outcome.Err, again, time.Until(at) > 59*time.Minute)
	}
	// Output:
	// attempt 1
	// true false
	// false true
	// the bank is closed true true
}

// Fail returns the new record of the work.
func ExampleWork_Fail() {
	ctx := context.Background()
	works, done := exampleRunner("/example/fail/")
	defer done()

	for _, cause := range []error{errors.New("timeout"), etcdclaims.Permanent(errors.New("no such customer"))} {
		job, err := works.TryBegin(ctx, "bill/42", work.Again(work.StateFailed)) // without waiting
		if err != nil {
			log.Fatal(err)
		}
		switch record, err := job.Fail(ctx, cause); {
		case err != nil:
			log.Fatal(err)
		case record.State == work.StateDead:
			fmt.Println("dead:", record.Error)
		default:
			fmt.Println("again:", record.NotBefore.After(time.Now()))
		}
	}
	// Output:
	// again: true
	// dead: no such customer
}

// Previous returns the record of the attempt before this one.
func ExampleWork_Previous() {
	ctx := context.Background()
	works, done := exampleRunner("/example/previous/")
	defer done()

	job, err := works.TryBegin(ctx, "import/7", etcdclaims.Note([]byte("customers.csv")))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := job.Fail(ctx, etcdclaims.RetryAfter(errors.New("line 12"), 0)); err != nil {
		log.Fatal(err)
	}
	job, err = works.TryBegin(ctx, "import/7")
	if err != nil {
		log.Fatal(err)
	}
	if before, ok := job.Previous(); ok {
		fmt.Println(before.State, before.Attempt, before.Owner, before.Error, before.Note)
	}
	_ = job.Complete(ctx)
	// Output: failed 1 biller-1 line 12 customers.csv
}

// An operator lists the work that needs attention.
func ExampleRunner_Records() {
	ctx := context.Background()
	works, done := exampleRunner("/example/records/")
	defer done()

	for _, key := range []string{"bill/1", "bill/2"} {
		_ = works.Run(ctx, key, func(context.Context, *work.Work) error {
			return etcdclaims.Permanent(errors.New("no such customer"))
		})
	}
	for record, err := range works.Records(ctx, "bill/", work.StateDead, work.StateOrphaned) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(record.Key, record.State, record.Error)
		_ = works.Forget(ctx, record.Key, record.State)
	}
	// Output:
	// bill/1 dead no such customer
	// bill/2 dead no such customer
}

// An operator retries dead work once its cause is fixed.
func ExampleRunner_Retry() {
	ctx := context.Background()
	works, done := exampleRunner("/example/retry/")
	defer done()

	customers := 0
	bill := func(context.Context, *work.Work) error {
		if customers == 0 {
			return etcdclaims.Permanent(errors.New("no such customer"))
		}
		return nil
	}
	err := works.Run(ctx, "bill/42", bill)
	fmt.Println("dead:", errors.Is(err, work.ErrDead))
	customers = 1
	record, err := works.Retry(ctx, "bill/42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("after Retry:", record.State)
	if err := works.Run(ctx, "bill/42", bill); err != nil {
		log.Fatal(err)
	}
	fmt.Println("billed")
	_ = works.Forget(ctx, "bill/42")
	// Output:
	// dead: true
	// after Retry: free
	// billed
}

// Once stores the result of the function. A later call returns that result
// without calling the function.
func ExampleRunner_Once() {
	ctx := context.Background()
	works, done := exampleRunner("/example/once/")
	defer done()

	pay := func(context.Context) ([]byte, error) {
		fmt.Println("paying")
		return []byte("receipt 1001"), nil
	}
	for range 2 {
		receipt, first, err := works.Once(ctx, "payment/42", pay)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s, first: %t\n", receipt, first)
	}
	if err := works.Forget(ctx, "payment/42"); err != nil { // so that the example can run again
		log.Fatal(err)
	}
	// Output:
	// paying
	// receipt 1001, first: true
	// receipt 1001, first: false
}
