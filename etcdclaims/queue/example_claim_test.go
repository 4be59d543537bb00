package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// One process at a time takes items from a queue: the holder of a claim. The guard of the
// claim is in its writes, so those of a former holder are refused, also if it has not
// noticed yet that it is one.
func ExampleQueue_oneDequeuer() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-dequeuer/", Owner: "api-7", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)
	q, err := queue.New(claims, queue.Config{Name: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close(ctx)
	if _, err := q.Enqueue(ctx, queue.NewItem([]byte("a book"), queue.ID("order-1"))); err != nil {
		log.Fatal(err)
	}

	turn, err := claims.Acquire(ctx, "dequeuer/orders")
	if err != nil {
		log.Fatal(err)
	}
	_, err = claims.TryAcquire(ctx, "dequeuer/orders")
	fmt.Println("another dequeuer:", errors.Is(err, etcdclaims.ErrHeld))

	// ship writes under the claim of the dequeuer. The claim decides, and not the lease of
	// the item: the next dequeuer may handle the item again.
	ship := func(turn *etcdclaims.Claim, l *queue.Delivery) error {
		put := clientv3.OpPut("/example-shipped/"+l.ID(), string(l.Payload()))
		_, err := turn.Txn(ctx).Then(put).Commit()
		return err
	}
	batch, err := q.Claim(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	l := batch.Deliveries[0]
	if err := admin.ForceRelease(ctx, claims, "dequeuer/orders", "api-7 is replaced"); err != nil {
		log.Fatal(err)
	}
	next, err := claims.Acquire(ctx, "dequeuer/orders")
	if err != nil {
		log.Fatal(err)
	}
	defer next.Release(ctx)
	fmt.Println("the former one ships:", errors.Is(ship(turn, l), etcdclaims.ErrLost))
	if err := errors.Join(ship(next, l), l.Complete(ctx)); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the present one ships", string(l.Payload()))
	// Output:
	// another dequeuer: true
	// the former one ships: true
	// the present one ships a book
}

// A batch is completed by one request. An item that this process no longer has is reported, and
// the others are completed.
func ExampleBatch_CompleteAll() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-batch/", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)
	q, err := queue.New(claims, queue.Config{Name: "mails"})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close(ctx)
	for _, id := range []string{"a", "b", "c"} {
		if _, err := q.Enqueue(ctx, queue.NewItem(nil, queue.ID(id))); err != nil {
			log.Fatal(err)
		}
	}

	batch, err := q.Claim(ctx, 3)
	if err != nil {
		log.Fatal(err)
	}
	if err := batch.Deliveries[1].Release(ctx); err != nil {
		log.Fatal(err)
	}
	var failed *queue.CompleteAllError
	if errors.As(batch.CompleteAll(ctx), &failed) {
		for i, err := range failed.Errs {
			fmt.Println(batch.Deliveries[i].ID(), "is completed:", err == nil)
		}
	}
	// Output:
	// a is completed: true
	// b is completed: false
	// c is completed: true
}
