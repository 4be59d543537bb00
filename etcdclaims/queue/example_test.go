package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"time"

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
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-queue/", Logger: zap.Must(zap.NewProduction())})
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
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("enqueued %s: %v\n", name, added)
	}
	batch, err := q.Claim(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range batch.Deliveries {
		if err := l.Complete(ctx, clientv3.OpPut("/thumbnails/"+l.ID(), "scaled")); err != nil {
			log.Fatal(err)
		}
		fmt.Println("completed", string(l.Payload()), "in attempt", l.Attempt())
	}
	// Output:
	// enqueued cat.png: true
	// enqueued dog.png: true
	// enqueued cat.png: false
	// completed cat.png in attempt 1
	// completed dog.png in attempt 1
}

// A tool opens a queue that others made, as they configured it.
func ExampleOpen() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-open/", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)
	_, err = queue.Open(ctx, claims, "reports")
	if errors.Is(err, queue.ErrNotFound) {
		fmt.Println(err)
	}

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
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready:", stats.Ready)
	fmt.Println("higher first:", q.Config().HigherFirst, "most taken:", q.Config().MaxTaken)
	// Output:
	// open: queue "reports": no such queue
	// ready: 1
	// higher first: true most taken: 2
}

// A queue is paused for the time of a migration, and its items are claimed again by themselves.
func ExampleQueue_Pause() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-queue-pause/", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)
	q, err := queue.New(claims, queue.Config{Name: "reports"})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close(ctx)
	if err := q.Pause(ctx, "migration, INC-311", queue.For(2*time.Hour)); err != nil {
		log.Fatal(err)
	}
	stats, err := q.Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("paused for", stats.Paused.Until.Sub(stats.Paused.At)) // or until Resume
	// Output:
	// paused for 2h0m0s
}

// A parent item enqueues its children in the transaction that completes it: either both
// happen or neither. With ids of their own the children are enqueued once, even if another
// attempt of the parent enqueues them again.
func ExampleQueue_Op() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-op/", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)
	q, err := queue.New(claims, queue.Config{Name: "albums"})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close(ctx)

	if _, err := q.Enqueue(ctx, queue.NewItem(nil, queue.ID("album-7"), queue.Topic("album"))); err != nil {
		log.Fatal(err)
	}
	work, stop := context.WithCancel(ctx)
	defer stop()
	err = q.Work(work, queue.WorkerConfig{Handlers: map[string]queue.Handler{
		"album": func(ctx context.Context, l *queue.Delivery) error {
			child, err := q.Op(queue.NewItem([]byte("cover.png"), queue.ID(l.ID()+"/cover"), queue.Topic("image")))
			if err != nil {
				return err
			}
			return l.Complete(ctx, child, clientv3.OpPut("/albums/"+l.ID(), "split"))
		},
		"image": func(_ context.Context, l *queue.Delivery) error {
			fmt.Println(l.ID(), string(l.Payload()))
			stop()
			return nil
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	// Output: album-7/cover cover.png
}

// A worker handles items by topic until its context ends.
func ExampleQueue_Work() {
	ctx, stop := context.WithCancel(context.Background())
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-worker/", Logger: zap.Must(zap.NewProduction())})
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
		"welcome": func(_ context.Context, l *queue.Delivery) error {
			fmt.Println("welcome,", string(l.Payload()))
			stop()
			return nil
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	// Output: welcome, you@example.com
}

// A caller waits for the result that the worker of its item sets.
func ExampleQueue_Wait() {
	ctx, stop := context.WithCancel(context.Background())
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-wait/", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(context.Background())
	q, err := queue.New(claims, queue.Config{Name: "words"})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close(context.Background())

	worked := make(chan error)
	go func() {
		worked <- q.Work(ctx, queue.WorkerConfig{Handler: func(_ context.Context, d *queue.Delivery) error {
			return d.SetResult(bytes.ToUpper(d.Payload())) // nil completes the item
		}})
	}()
	it := queue.NewItem([]byte("hello"))
	if _, err := q.Enqueue(ctx, it); err != nil {
		log.Fatal(err)
	}
	done, err := q.Wait(ctx, it.ID())
	if err != nil {
		log.Fatal(err) // queue.ErrDead if its attempts have failed
	}
	fmt.Printf("%s after %d attempt\n", done.Result, done.Attempts)
	stop()
	if err := <-worked; err != nil {
		log.Fatal(err)
	}
	// Output: HELLO after 1 attempt
}

// Two requests for the report of one customer are one item in an hour.
func ExampleUnique() {
	request := func(by, customer string) queue.Item {
		return queue.NewItem([]byte(by), queue.Topic("report"), queue.Unique(time.Hour, customer))
	}
	first, again, other := request("ann", "c7"), request("bob", "c7"), request("bob", "c8")
	fmt.Println(first.ID() == again.ID(), first.ID() == other.ID())
	// Output: true false
}

// A document that is edited three times in a row is indexed once, when its author pauses.
func ExampleDebounce() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-debounce/", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)
	q, err := queue.New(claims, queue.Config{Name: "index", Retention: -1}) // a later edit is another item
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close(ctx)

	for _, edit := range []string{"T", "Te", "Text"} {
		it := queue.NewItem([]byte(edit), queue.ID("doc-7"), queue.Debounce(300*time.Millisecond, time.Minute))
		if _, err := q.Enqueue(ctx, it); err != nil {
			log.Fatal(err)
		}
	}
	batch, err := q.Claim(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(batch.Deliveries[0].Payload()))
	// Output: Text
}

// A handler is told that its item was cancelled.
func ExampleAlsoTaken() {
	ctx, stop := context.WithCancel(context.Background())
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-cancel/", Owner: "web-1", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(context.Background())
	q, err := queue.New(claims, queue.Config{Name: "videos"})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close(context.Background())

	begun, worked := make(chan string), make(chan error)
	go func() {
		worked <- q.Work(ctx, queue.WorkerConfig{Handler: func(ctx context.Context, d *queue.Delivery) error {
			begun <- d.ID()
			<-ctx.Done() // what takes long
			fmt.Println(context.Cause(ctx))
			stop()
			return ctx.Err()
		}})
	}()
	if _, err := q.Enqueue(ctx, queue.NewItem([]byte("cat.mp4"))); err != nil {
		log.Fatal(err)
	}
	if err := q.Cancel(context.Background(), <-begun, queue.AlsoTaken("the user has left")); err != nil {
		log.Fatal(err)
	}
	if err := <-worked; err != nil {
		log.Fatal(err)
	}
	// Output: item was cancelled by web-1: the user has left
}

// Items are values of a type. Those whose payload cannot be decoded are dead letters.
func ExampleOf() {
	ctx, stop := context.WithCancel(context.Background())
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-typed/", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(context.Background())
	q, err := queue.New(claims, queue.Config{Name: "mails"})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close(context.Background())

	type Mail struct{ To, Subject string }
	mails := queue.Of[Mail](q)
	if _, err := mails.Enqueue(ctx, Mail{To: "you@example.com", Subject: "welcome"}, queue.ID("welcome/you")); err != nil {
		log.Fatal(err)
	}
	err = q.Work(ctx, queue.WorkerConfig{Handler: mails.Handler(func(_ context.Context, m Mail, l *queue.Delivery) error {
		fmt.Printf("attempt %d: %s to %s\n", l.Attempt(), m.Subject, m.To)
		stop()
		return nil
	})})
	if err != nil {
		log.Fatal(err)
	}
	// Output: attempt 1: welcome to you@example.com
}
