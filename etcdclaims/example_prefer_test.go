package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// A process in a far zone leads until one in the near zone has been in line for a while.
func ExamplePrefer() {
	ctx := context.Background()
	far, done := exampleClient("/example/prefer/")
	defer done()
	near, done := exampleClient("/example/prefer/")
	defer done()

	lead := func(claims *etcdclaims.Client, preference int, work func(ctx context.Context)) error {
		return claims.Run(ctx, "leader", func(ctx context.Context) error {
			work(ctx)
			return nil
		}, etcdclaims.Prefer(preference), etcdclaims.YieldAfter(time.Second))
	}
	started, nearLed := make(chan struct{}), make(chan error)
	go func() {
		<-started
		nearLed <- lead(near, 1, func(context.Context) { fmt.Println("the near zone leads") })
	}()
	err := lead(far, 0, func(ctx context.Context) {
		fmt.Println("the far zone leads")
		close(started)
		<-ctx.Done()
		fmt.Println("it yields:", errors.Is(context.Cause(ctx), etcdclaims.ErrYield))
	})
	if err := errors.Join(err, <-nearLed); err != nil {
		log.Fatal(err)
	}

	// Output:
	// the far zone leads
	// it yields: true
	// the near zone leads
}
