package etcdguard_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Code that writes through a clientv3.KV needs no change to be guarded. The owner
// writes with its claim; a service that it calls writes with the token it was sent.
func Example() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)
	ship := func(kv clientv3.KV) error {
		_, err := kv.Put(ctx, "/orders/42/state", "shipped")
		return err
	}

	claim, err := claims.TryAcquire(ctx, "orders/42")
	if err != nil {
		log.Fatal(err)
	}
	if err := ship(etcdguard.NewKV(etcd, claim)); err != nil {
		log.Fatal(err)
	}
	fmt.Println("shipped by the owner")

	text, err := claim.Token().MarshalText() // sent as the header Fencing-Token
	if err != nil {
		log.Fatal(err)
	}
	token, err := fencing.Parse(string(text))
	if err != nil {
		log.Fatal(err)
	}
	if err := ship(etcdguard.NewKV(etcd, etcdguard.Bearer("", token))); err != nil {
		log.Fatal(err)
	}
	fmt.Println("shipped by the bearer of its token")

	if err := claim.Release(ctx); err != nil {
		log.Fatal(err)
	}
	err = ship(etcdguard.NewKV(etcd, etcdguard.Bearer("", token)))
	fmt.Println("bearer after the release is stale:", errors.Is(err, fencing.ErrStale))
	// Output:
	// shipped by the owner
	// shipped by the bearer of its token
	// bearer after the release is stale: true
}
