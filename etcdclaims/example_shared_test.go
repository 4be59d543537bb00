package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/etcdclaims/claims/etcdclaims"
)

// Readers share a data set. One that finds it out of date becomes its only writer if
// nobody else reads it, and then a reader again.
func ExampleShared() {
	ctx := context.Background()
	claims, done := exampleClient("/example/shared/")
	defer done()

	reader, err := claims.Acquire(ctx, "dataset/eu", etcdclaims.Shared())
	if err != nil {
		log.Fatal(err)
	}
	other, err := claims.Acquire(ctx, "dataset/eu", etcdclaims.Shared())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("one fence:", reader.Fence() == other.Fence())

	_, err = reader.Upgrade(ctx)
	var held *etcdclaims.HeldError
	if errors.As(err, &held) {
		fmt.Println("shared by", held.Info.Shared)
	}

	if err := other.Release(ctx); err != nil {
		log.Fatal(err)
	}
	writer, err := reader.Upgrade(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("greater fence:", writer.Fence() > reader.Fence())

	again, err := writer.Downgrade(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer again.Release(ctx)
	fmt.Println("greater fence:", again.Fence() > writer.Fence())
	// Output:
	// one fence: true
	// shared by 2
	// greater fence: true
	// greater fence: true
}
