package etcdclaims_test

import (
	"context"
	"fmt"
	"log"

	"github.com/etcdclaims/claims/etcdclaims"
)

// A loop over many keys waits for one round trip for each of them: the release of one key shares that of the next.
func ExampleLazyRelease() {
	ctx := context.Background()
	claims, done := exampleClient("/example/lazy/")
	defer done()

	for _, order := range []string{"orders/1", "orders/2", "orders/3"} {
		claim, err := claims.TryAcquire(ctx, order, etcdclaims.LazyRelease())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("handled:", order)
		if err := claim.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("held:", claims.Stats().Held)

	// Output:
	// handled: orders/1
	// handled: orders/2
	// handled: orders/3
	// held: 0
}
