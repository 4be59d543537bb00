package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/etcdclaims/claims/etcdclaims"
)

// Readers share a data set. A writer has it alone.
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

	_, err = claims.TryAcquire(ctx, "dataset/eu")
	var held *etcdclaims.HeldError
	if errors.As(err, &held) {
		fmt.Println("shared by", held.Info.Shared)
	}

	for _, claim := range []*etcdclaims.Claim{reader, other} {
		if err := claim.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	writer, err := claims.Acquire(ctx, "dataset/eu")
	if err != nil {
		log.Fatal(err)
	}
	defer writer.Release(ctx)
	fmt.Println("greater fence:", writer.Fence() > reader.Fence())
	// Output:
	// one fence: true
	// shared by 2
	// greater fence: true
}
