package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/etcdclaims/claims/fencing"
)

// A gate refuses a token once it has admitted a newer one.
func Example() {
	ctx := context.Background()
	var gate fencing.Memory // an early reject only: see its documentation

	newer := fencing.Token{Key: "orders/42", Fence: 1235}
	if err := fencing.Seal(ctx, newer, &gate); err != nil {
		log.Fatal(err)
	}

	token, err := fencing.Parse(`1234;key="orders/42"`)
	if err != nil {
		log.Fatal(err)
	}
	err = gate.Admit(ctx, token)
	var stale *fencing.StaleError
	if errors.As(err, &stale) {
		fmt.Println("stale, the newest fence is", stale.Newest)
	}
	refusal, _ := fencing.RefusalOf(err)
	fmt.Println("over HTTP:", refusal.Status, refusal.Reason)
	// Output:
	// stale, the newest fence is 1235
	// over HTTP: 412 STALE_FENCE
}
