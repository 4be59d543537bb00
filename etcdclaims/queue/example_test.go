package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Two items are enqueued and handled. Complete writes the result in the transaction
// that removes the item from the queue.
func Example() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-queue/"})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)
	q, err := queue.New(claims, queue.Config{Name: "thumbnails"})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close(ctx)

	for _, name := range []string{"cat.png", "dog.png", "cat.png"} {
		added, err := q.Enqueue(ctx, queue.NewItem([]byte(name), queue.ID(name)))
		fmt.Println("enqueued", name, added, err)
	}
	batch, err := q.Claim(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range batch.Leases {
		err := l.Complete(ctx, clientv3.OpPut("/thumbnails/"+l.ID(), "scaled"))
		fmt.Println("completed", string(l.Payload()), "in attempt", l.Attempt(), err)
	}
	// Output:
	// enqueued cat.png true <nil>
	// enqueued dog.png true <nil>
	// enqueued cat.png false <nil>
	// completed cat.png in attempt 1 <nil>
	// completed dog.png in attempt 1 <nil>
}

// A tool opens a queue that others made, as they configured it.
func ExampleOpen() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-open/"})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)
	_, err = queue.Open(ctx, claims, "reports")
	fmt.Println(err, errors.Is(err, queue.ErrNoQueue))

	made, err := queue.New(claims, queue.Config{Name: "reports", HigherFirst: true, MaxTaken: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer made.Close(ctx)
	if _, err := made.Enqueue(ctx, queue.NewItem([]byte("2026-11"))); err != nil {
		log.Fatal(err)
	}
	q, err := queue.Open(ctx, claims, "reports")
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close(ctx)
	stats, err := q.Stats(ctx)
	fmt.Println(stats.Ready, q.Config().HigherFirst, q.Config().MaxTaken, err)
	// Output:
	// open: queue "reports": no such queue true
	// 1 true 2 <nil>
}

// A worker handles items by topic until its context ends.
func ExampleQueue_Work() {
	ctx, stop := context.WithCancel(context.Background())
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-worker/"})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(context.Background())
	q, err := queue.New(claims, queue.Config{Name: "mails"})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close(context.Background())

	if _, err := q.Enqueue(ctx, queue.NewItem([]byte("you@example.com"), queue.Topic("welcome"))); err != nil {
		log.Fatal(err)
	}
	err = q.Work(ctx, queue.WorkerConfig{Handlers: map[string]queue.Handler{
		"welcome": func(_ context.Context, l *queue.Lease) error {
			fmt.Println("welcome,", string(l.Payload()))
			stop()
			return nil
		},
	}})
	fmt.Println(err)
	// Output:
	// welcome, you@example.com
	// <nil>
}
