package etcdclaims_test

import (
	"context"
	"fmt"
	"log"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
)

// Two processes wait for the leader to end. The one in the near zone came last, and leads first.
func ExamplePrefer() {
	ctx := context.Background()
	leader, done := exampleClient("/example/prefer/")
	defer done()
	far, done := exampleClient("/example/prefer/")
	defer done()
	near, done := exampleClient("/example/prefer/")
	defer done()

	claim, err := leader.Acquire(ctx, "leader", etcdclaims.Prefer(0))
	if err != nil {
		log.Fatal(err)
	}
	results := make(chan error, 2)
	stand := func(claims *etcdclaims.Client, zone string, preference int) {
		results <- claims.Run(ctx, "leader", func(context.Context) error {
			fmt.Println("leads:", zone)
			return nil
		}, etcdclaims.Prefer(preference))
	}
	inLine := func(n int) {
		for {
			line, err := admin.Line(ctx, leader, "leader")
			if err != nil {
				log.Fatal(err)
			}
			if len(line) == n {
				return
			}
		}
	}
	go stand(far, "far", 0)
	inLine(1)
	go stand(near, "near", 1)
	inLine(2)
	if err := claim.Release(ctx); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if err := <-results; err != nil {
			log.Fatal(err)
		}
	}

	// Output:
	// leads: near
	// leads: far
}
