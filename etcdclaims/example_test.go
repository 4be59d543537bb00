package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// exampleConfig returns the endpoints of an etcd that the tests of this package
// start.
func exampleConfig() clientv3.Config {
	return clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()}
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
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Owner: "reporter-1", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(context.Background())

	report := func(ctx context.Context) error {
		token, _ := fencing.FromContext(ctx)
		fmt.Println("reporting under", token.Key)
		return ctx.Err()
	}
	err = claims.TryRun(ctx, "nightly-report", report)
	switch {
	case errors.Is(err, etcdclaims.ErrHeld):
		fmt.Println("another process runs the report")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println("reported")
	}
	// Output:
	// reporting under nightly-report
	// reported
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
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(context.Background())

	claim, err := claims.TryAcquire(ctx, "account/7")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := claim.Txn(ctx).Then(clientv3.OpPut("/balance/7", "12")).Commit(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the owner has written")

	// Somebody takes the claim away.
	if err := admin.ForceRelease(ctx, claims, "account/7", "maintenance"); err != nil {
		log.Fatal(err)
	}
	_, err = claim.Txn(ctx).Then(clientv3.OpPut("/balance/7", "13")).Commit()
	fmt.Println("ex-owner is refused:", errors.Is(err, etcdclaims.ErrLost))
	// Output:
	// the owner has written
	// ex-owner is refused: true
}

// A client without etcd, for development: it lets every call through.
func ExampleNewPassthrough() {
	claims, err := etcdclaims.NewPassthrough(etcdclaims.Config{Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	claim, err := claims.TryAcquire(context.Background(), "k")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("passthrough:", claims.Passthrough(), "fence:", claim.Fence())
	// Output: passthrough: true fence: 0
}
