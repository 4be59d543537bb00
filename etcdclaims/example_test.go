package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// What the examples dial: an etcd that the tests of this package start.
func exampleConfig() clientv3.Config {
	return clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()}
}

// The program of the README: work that runs once, whoever begins it, with an
// effect that happens if and only if it does.
func Example() {
	ctx := context.Background()
	etcd, err := clientv3.New(exampleConfig())
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)

	work, err := claims.TryBegin(ctx, "invoice/42")
	switch {
	case errors.Is(err, etcdclaims.ErrHeld), errors.Is(err, etcdclaims.ErrDone):
		return // another has it, or it is done
	case err != nil:
		log.Fatal(err)
	}
	// ... the work, which stops when work.Context() ends ...
	err = work.Complete(ctx, clientv3.OpPut("/paid/42", "100 EUR"))
	fmt.Println(err)
	// Output: <nil>
}

// A handler that runs in one process at a time, and is told to stop when that
// ends.
func ExampleClient_TryRun() {
	ctx := context.Background()
	etcd, err := clientv3.New(exampleConfig())
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Owner: "reporter-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)

	report := func(ctx context.Context) error {
		fmt.Println("running")
		return ctx.Err()
	}
	fmt.Println(claims.TryRun(ctx, "nightly-report", report))
	// Output:
	// running
	// <nil>
}

// A write that is refused once the claim has a newer owner, in the round trip
// that it takes anyway.
func ExampleClaim_Txn() {
	ctx := context.Background()
	etcd, err := clientv3.New(exampleConfig())
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)

	claim, err := claims.TryAcquire(ctx, "account/7")
	if err != nil {
		log.Fatal(err)
	}
	_, err = claim.Txn(ctx).Then(clientv3.OpPut("/balance/7", "12")).Commit()
	fmt.Println("owner:", err)

	// Somebody takes the claim away.
	if err := claims.ForceRelease(ctx, "account/7", "maintenance"); err != nil {
		log.Fatal(err)
	}
	_, err = claim.Txn(ctx).Then(clientv3.OpPut("/balance/7", "13")).Commit()
	fmt.Println("ex-owner is refused:", errors.Is(err, etcdclaims.ErrLost))
	// Output:
	// owner: <nil>
	// ex-owner is refused: true
}

// With a nil client, or one made without etcd, everything is let through.
func ExampleClient_Passthrough() {
	var claims *etcdclaims.Client // not configured
	claim, err := claims.TryAcquire(context.Background(), "k")
	fmt.Println(claims.Passthrough(), claim.Fence(), err)
	// Output: true 0 <nil>
}

// A lock for each firing of a beat scheduler that brings owner names of its own.
// It is not released: it outlives the job, so that a replica whose clock is behind
// finds it taken.
func ExampleLocks_beat() {
	ctx := context.Background()
	etcd, err := clientv3.New(exampleConfig())
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)

	locks := claims.Locks()
	nominal := time.Date(2026, time.March, 1, 2, 30, 0, 0, time.UTC)
	for _, replica := range []string{"beat-1", "beat-2"} { // each in a process of its own
		_, leads, err := locks.TryAcquire(ctx, "beat/leader", replica, 15*time.Second)
		if err != nil {
			log.Fatal(err) // a beat tries again: who does not know does not lead
		}
		_, fires, err := locks.TryAcquire(ctx, "beat/report@"+nominal.Format(time.RFC3339), replica, 300*time.Second)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(replica, "leads:", leads, "fires:", fires)
	}
	n, err := locks.ReleaseAll(ctx, "beat-1")
	fmt.Println("released:", n, err)
	// Output:
	// beat-1 leads: true fires: true
	// beat-2 leads: false fires: false
	// released: 2 <nil>
}
