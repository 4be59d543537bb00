package objectguard_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/objectguard"
)

// A new owner seals the object before it reads what the previous owner left. From then
// on the store refuses the previous owner's writes.
func Example() {
	ctx := context.Background()
	var store objectguard.Memory // in production: a Store around the client of S3, GCS or Azure
	ledger, err := objectguard.New(&store, "ledgers/eu")
	if err != nil {
		fmt.Println(err)
		return
	}
	first := fencing.Token{Key: "ledgers/eu", Fence: 7} // claim.Token() returns such a token
	if err := ledger.Write(ctx, first, []byte("balance 100")); err != nil {
		fmt.Println(err)
		return
	}

	second := fencing.Token{Key: "ledgers/eu", Fence: 8}
	if err := fencing.Seal(ctx, second, ledger); err != nil {
		fmt.Println(err)
		return
	}
	err = ledger.Write(ctx, first, []byte("balance 90"))
	fmt.Println("the first owner's late write is stale:", errors.Is(err, fencing.ErrStale))

	data, token, err := ledger.Read(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s, sealed with fence %d\n", data, token.Fence)
	// Output:
	// the first owner's late write is stale: true
	// balance 100, sealed with fence 8
}
