package etcdclaims_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// The leader of a group of processes dies without a word. The next one leads in half a
// second, not when the lease of 15 s is over. All that a leader writes is fenced.
func ExampleSuspectable() {
	ctx := context.Background()
	dying, crash := exampleClient("/example/suspect/")
	next, done := exampleClient("/example/suspect/")
	defer done()

	old, err := dying.Acquire(ctx, "leader", etcdclaims.Suspectable())
	if err != nil {
		log.Fatal(err)
	}
	var died time.Time
	time.AfterFunc(time.Second, func() { died = time.Now(); crash() })
	leader, err := next.Acquire(ctx, "leader", etcdclaims.Suspectable())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("soon:", time.Since(died) < 5*time.Second)
	fmt.Println("greater fence:", leader.Fence() > old.Fence())

	// Output:
	// soon: true
	// greater fence: true
}
