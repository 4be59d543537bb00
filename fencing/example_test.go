package fencing_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
)

// A token as it travels, and a gate that has seen a newer one.
func Example() {
	ctx := context.Background()
	var gate fencing.Memory // an early reject: see its doc

	newer := fencing.Token{Key: "orders/42", Fence: 1235}
	fmt.Println("sealed:", fencing.Seal(ctx, newer, &gate))

	token, err := fencing.Parse(`1234;key="orders/42"`)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = gate.Admit(ctx, token)
	var stale *fencing.StaleError
	fmt.Println("late:", errors.As(err, &stale), stale.Newest)
	refusal, _ := fencing.RefusalOf(err)
	fmt.Println("told as:", refusal.Status, refusal.Reason)
	// Output:
	// sealed: <nil>
	// late: true 1235
	// told as: 412 STALE_FENCE
}
