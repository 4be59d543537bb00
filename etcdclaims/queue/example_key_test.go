package queue_test

import (
	"context"
	"fmt"
	"log"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// The items of one customer are handled one after the other, in order, and do not delay those of another.
func ExamplePartitionKey() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-partition-key/", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)
	q, err := queue.New(claims, queue.Config{Name: "invoices", KeyLimit: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close(ctx)

	for _, customer := range []string{"ann", "ann", "bob"} {
		if _, err := q.Enqueue(ctx, queue.NewItem(nil, queue.PartitionKey(customer))); err != nil {
			log.Fatal(err)
		}
	}
	for range 2 {
		batch, err := q.TryClaim(ctx, 3)
		if err != nil {
			log.Fatal(err)
		}
		for _, d := range batch.Deliveries {
			fmt.Println("invoice of", d.PartitionKey())
		}
		if err := batch.CompleteAll(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// invoice of ann
	// invoice of bob
	// invoice of ann
}
