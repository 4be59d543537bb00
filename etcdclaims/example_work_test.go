package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// exampleClient returns a client with a prefix of its own.
func exampleClient(prefix string) (claims *etcdclaims.Client, done func()) {
	etcd, err := clientv3.New(exampleConfig())
	if err != nil {
		log.Fatal(err)
	}
	claims, err = etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix, Owner: "biller-1", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	return claims, func() {
		_ = claims.Close(context.Background())
		_ = etcd.Close()
	}
}

// RunWork records the outcome of the function, and its next attempt.
func ExampleClient_RunWork() {
	ctx := context.Background()
	claims, done := exampleClient("/example/runwork/")
	defer done()

	bill := func(ctx context.Context, w *etcdclaims.Work) error {
		fmt.Println("attempt", w.Attempt())
		// The effect happens if and only if the work is done.
		return w.Complete(ctx, clientv3.OpPut("/billed/42", "100 EUR"))
	}
	for range 2 {
		err := claims.RunWork(ctx, "bill/42", bill)
		fmt.Println(err == nil, errors.Is(err, etcdclaims.ErrDone))
	}

	err := claims.RunWork(ctx, "bill/43", func(context.Context, *etcdclaims.Work) error {
		return etcdclaims.RetryAfter(errors.New("the bank is closed"), time.Hour)
	})
	var outcome *etcdclaims.WorkError
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
	claims, done := exampleClient("/example/fail/")
	defer done()

	for _, cause := range []error{errors.New("timeout"), etcdclaims.Permanent(errors.New("no such customer"))} {
		work, err := claims.TryBegin(ctx, "bill/42", etcdclaims.Again(etcdclaims.StateFailed)) // without waiting
		if err != nil {
			log.Fatal(err)
		}
		switch record, err := work.Fail(ctx, cause); {
		case err != nil:
			log.Fatal(err)
		case record.State == etcdclaims.StateDead:
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
	claims, done := exampleClient("/example/previous/")
	defer done()

	work, err := claims.TryBegin(ctx, "import/7", etcdclaims.Note([]byte("customers.csv")))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := work.Fail(ctx, etcdclaims.RetryAfter(errors.New("line 12"), 0)); err != nil {
		log.Fatal(err)
	}
	work, err = claims.TryBegin(ctx, "import/7")
	if err != nil {
		log.Fatal(err)
	}
	if before, ok := work.Previous(); ok {
		fmt.Println(before.State, before.Attempt, before.Owner, before.Error, before.Note)
	}
	_ = work.Complete(ctx)
	// Output: failed 1 biller-1 line 12 customers.csv
}

// An operator lists the work that needs attention.
func ExampleClient_Records() {
	ctx := context.Background()
	claims, done := exampleClient("/example/records/")
	defer done()

	for _, key := range []string{"bill/1", "bill/2"} {
		_ = claims.RunWork(ctx, key, func(context.Context, *etcdclaims.Work) error {
			return etcdclaims.Permanent(errors.New("no such customer"))
		})
	}
	for record, err := range claims.Records(ctx, "bill/", etcdclaims.StateDead, etcdclaims.StateOrphaned) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(record.Key, record.State, record.Error)
		_ = claims.Forget(ctx, record.Key, record.State)
	}
	// Output:
	// bill/1 dead no such customer
	// bill/2 dead no such customer
}

// An operator retries dead work once its cause is fixed.
func ExampleClient_Retry() {
	ctx := context.Background()
	claims, done := exampleClient("/example/retry/")
	defer done()

	customers := 0
	bill := func(context.Context, *etcdclaims.Work) error {
		if customers == 0 {
			return etcdclaims.Permanent(errors.New("no such customer"))
		}
		return nil
	}
	err := claims.RunWork(ctx, "bill/42", bill)
	fmt.Println("dead:", errors.Is(err, etcdclaims.ErrDead))
	customers = 1
	record, err := claims.Retry(ctx, "bill/42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("after Retry:", record.State)
	if err := claims.RunWork(ctx, "bill/42", bill); err != nil {
		log.Fatal(err)
	}
	fmt.Println("billed")
	_ = claims.Forget(ctx, "bill/42")
	// Output:
	// dead: true
	// after Retry: free
	// billed
}
