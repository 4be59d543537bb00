package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Acquire waits while another caller holds the key. The deadline of its context
// bounds the waiting.
func ExampleClient_Acquire() {
	ctx := context.Background()
	claims, done := exampleClient("/example/acquire/")
	defer done()

	first, err := claims.Acquire(ctx, "account/7")
	if err != nil {
		log.Fatal(err)
	}

	waiting, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = claims.Acquire(waiting, "account/7")
	var held *etcdclaims.WaitError
	if errors.As(err, &held) {
		fmt.Println("still held by", held.Info.Owner)
	}

	if err := first.Release(ctx); err != nil {
		log.Fatal(err)
	}
	second, err := claims.Acquire(ctx, "account/7")
	if err != nil {
		log.Fatal(err)
	}
	defer second.Release(ctx)
	fmt.Println("greater fence:", second.Fence() > first.Fence())
	// Output:
	// still held by biller-1
	// greater fence: true
}

// Run waits in line for the key. Functions that run under one key never overlap.
func ExampleClient_Run() {
	ctx := context.Background()
	claims, done := exampleClient("/example/run/")
	defer done()

	balance := 0
	ended := make(chan error)
	for range 3 {
		go func() {
			ended <- claims.Run(ctx, "account/7", func(context.Context) error {
				balance += 10
				return nil
			})
		}()
	}
	for range 3 {
		if err := <-ended; err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(balance)
	// Output: 30
}

// Slots lets a fixed number of callers hold a key at the same time. Each has a number
// and a fence of its own.
func ExampleSlots() {
	ctx := context.Background()
	claims, done := exampleClient("/example/slots/")
	defer done()

	first, err := claims.TryAcquire(ctx, "licence", etcdclaims.Slots(2))
	if err != nil {
		log.Fatal(err)
	}
	second, err := claims.TryAcquire(ctx, "licence", etcdclaims.Slots(2))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("different slots:", first.Slot() != second.Slot())

	_, err = claims.TryAcquire(ctx, "licence", etcdclaims.Slots(2))
	fmt.Println("a third is refused:", errors.Is(err, etcdclaims.ErrHeld))

	if err := admin.Resize(ctx, claims, "licence", 3); err != nil {
		log.Fatal(err)
	}
	third, err := claims.TryAcquire(ctx, "licence", etcdclaims.Slots(3))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(third.Key())

	for _, claim := range []*etcdclaims.Claim{first, second, third} {
		if err := claim.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	if err := admin.Resize(ctx, claims, "licence", 0); err != nil { // so that the example can run again
		log.Fatal(err)
	}
	// Output:
	// different slots: true
	// a third is refused: true
	// licence#slot-2
}

// Watch yields the keys that are held now, then Synced, then each change.
func ExampleClient_Watch() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	claims, done := exampleClient("/example/watch/")
	defer done()

	claim, err := claims.TryAcquire(ctx, "account/7")
	if err != nil {
		log.Fatal(err)
	}
	for event, err := range claims.Watch(ctx, "account/") {
		if err != nil {
			log.Fatal(err)
		}
		switch event.Kind {
		case etcdclaims.Claimed:
			fmt.Println(event.Info.Key, "is held by", event.Info.Owner)
		case etcdclaims.Synced:
			fmt.Println("synced")
			if err := claim.Release(ctx); err != nil {
				log.Fatal(err)
			}
		case etcdclaims.Freed:
			fmt.Println(event.Info.Key, "is free")
			return
		}
	}
	// Output:
	// account/7 is held by biller-1
	// synced
	// account/7 is free
}

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

// A handler reports each step. One that hangs loses its key, although its process lives and renews.
func ExampleProgress() {
	ctx := context.Background()
	claims, done := exampleClient("/example/progress/")
	defer done()

	claim, err := claims.Acquire(ctx, "import/7", etcdclaims.Progress(200*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	err = claim.Run(ctx, func(ctx context.Context) error {
		for range 3 { // rows
			if err := claim.Beat(); err != nil {
				return err
			}
		}
		<-ctx.Done() // a call that hangs
		return context.Cause(ctx)
	})
	var lost *etcdclaims.LostError
	if errors.As(err, &lost) {
		fmt.Println(lost.Reason)
	}
	// Output: its handler made no progress
}
