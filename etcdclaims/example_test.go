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

// exampleConfig returns the endpoints of an etcd that the tests of this package
// start.
func exampleConfig() clientv3.Config {
	return clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()}
}

// Work is done once, whichever process begins it, and its effect is written in the
// transaction that records it as done.
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

	err = claims.TryRunWork(ctx, "invoice/42", func(ctx context.Context, work *etcdclaims.Work) error {
		// ... the work itself; ctx ends shortly before the claim does ...
		return work.Complete(ctx, clientv3.OpPut("/paid/42", "100 EUR"))
	})
	if err != nil && !errors.Is(err, etcdclaims.ErrHeld) && !errors.Is(err, etcdclaims.ErrDone) {
		log.Fatal(err) // ErrHeld: somebody else has it or is in line; ErrDone: it is done
	}
	fmt.Println(err)
	// Output: <nil>
}

// TryRun calls the function if no other process holds the key. The context of
// the function ends before the claim expires.
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

// A transaction of a claim is refused once the claim has a newer owner. It
// takes no additional round trip.
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

// A nil client, or one made without etcd, lets every call through.
func ExampleClient_Passthrough() {
	var claims *etcdclaims.Client // not configured
	claim, err := claims.TryAcquire(context.Background(), "k")
	fmt.Println(claims.Passthrough(), claim.Fence(), err)
	// Output: true 0 <nil>
}

// A beat scheduler takes a lock for each tick, under owner names of its own.
// The lock of a tick is not released after the job, so that a replica whose
// clock is behind finds it taken.
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
