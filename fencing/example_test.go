package fencing_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
)

// A gate refuses a token once it has admitted a newer one.
func Example() {
	ctx := context.Background()
	var gate fencing.Memory // an early reject only: see its documentation

	newer := fencing.Token{Key: "orders/42", Fence: 1235}
	fmt.Println("sealed:", fencing.Seal(ctx, newer, &gate))

	token, err := fencing.Parse(`1234;key="orders/42"`)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = gate.Admit(ctx, token)
	var stale *fencing.StaleError
	if errors.As(err, &stale) {
		fmt.Println("stale, the newest fence is", stale.Newest)
	}
	refusal, _ := fencing.RefusalOf(err)
	fmt.Println("over HTTP:", refusal.Status, refusal.Reason)
	// Output:
	// sealed: <nil>
	// stale, the newest fence is 1235
	// over HTTP: 412 STALE_FENCE
}
