package locks_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// exampleClient returns a client on an etcd that the tests of this package start.
func exampleClient(prefix string) (claims *etcdclaims.Client, done func()) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	claims, err = etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix, Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	return claims, func() {
		_ = claims.Close(context.Background())
		_ = etcd.Close()
	}
}

// A lock belongs to the owner name that it was acquired with.
func Example() {
	ctx := context.Background()
	claims, done := exampleClient("/example/locks/")
	defer done()

	owned := locks.New(claims)
	for _, owner := range []string{"worker-1", "worker-2"} {
		_, ok, err := owned.TryAcquire(ctx, "account/7", owner, 30*time.Second)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(owner, "has the lock:", ok)
	}
	released, err := owned.Release(ctx, "account/7", "worker-1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("released:", released)
	// Output:
	// worker-1 has the lock: true
	// worker-2 has the lock: false
	// released: true
}

// A beat scheduler takes a lock for each tick, under owner names of its own.
// The lock of a tick is not released after the job, so that a replica whose
// clock is behind finds it taken.
func ExampleLocks() {
	ctx := context.Background()
	claims, done := exampleClient("/example/beat/")
	defer done()

	ticks := locks.New(claims)
	nominal := time.Date(2026, time.March, 1, 2, 30, 0, 0, time.UTC)
	for _, replica := range []string{"beat-1", "beat-2"} { // each in a process of its own
		_, leads, err := ticks.TryAcquire(ctx, "beat/leader", replica, 15*time.Second)
		if err != nil {
			log.Fatal(err) // a beat tries again: who does not know does not lead
		}
		_, fires, err := ticks.TryAcquire(ctx, "beat/report@"+nominal.Format(time.RFC3339), replica, 300*time.Second)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(replica, "leads:", leads, "fires:", fires)
	}
	n, err := ticks.ReleaseAll(ctx, "beat-1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("released:", n)
	// Output:
	// beat-1 leads: true fires: true
	// beat-2 leads: false fires: false
	// released: 2
}
