package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/etcdclaims/claims/etcdclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// What CallBegan puts into the context reaches the other hooks of the call and of its
// term: here a number, in a tracer a span.
func ExampleHooks() {
	ctx := context.Background()
	etcd, err := clientv3.New(exampleConfig())
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	type numberKey struct{}
	calls := 0 // the calls of this example come one after the other
	hooks := etcdclaims.Hooks{
		CallBegan: func(ctx context.Context, _ etcdclaims.Call) context.Context {
			calls++
			return context.WithValue(ctx, numberKey{}, calls)
		},
		CallEnded: func(ctx context.Context, call etcdclaims.Call) {
			fmt.Printf("call %d for %q returns, held by another: %v\n", ctx.Value(numberKey{}), call.Key, errors.Is(call.Err, etcdclaims.ErrHeld))
		},
		TermEnded: func(ctx context.Context, term etcdclaims.TermInfo) {
			fmt.Printf("the claim of call %d has ended, lost: %v\n", ctx.Value(numberKey{}), errors.Is(term.Err, etcdclaims.ErrLost))
		},
	}
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example/hooks/", Hooks: hooks, Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)

	claim, err := claims.TryAcquire(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}
	_, _ = claims.TryAcquire(ctx, "report")
	if err := claim.Release(ctx); err != nil {
		log.Fatal(err)
	}

	// Output:
	// call 1 for "report" returns, held by another: false
	// call 2 for "report" returns, held by another: true
	// the claim of call 1 has ended, lost: false
}
