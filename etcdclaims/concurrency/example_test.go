package concurrency_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/etcdclaims/claims/etcdclaims/concurrency"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// exampleEtcd returns a client of the etcd that claimctl-dev starts.
func exampleEtcd() *clientv3.Client {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:2379"}, Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	return etcd
}

// A program with etcd's package that has got another import. What is new are the context, which ends
// before the lock can be lost, and the fence, by which a late write is refused.
func ExampleMutex() {
	ctx := context.Background()
	etcd := exampleEtcd()
	defer etcd.Close()
	var sessions [2]*concurrency.Session // each in a process of its own
	for i := range sessions {
		s, err := concurrency.NewSession(etcd, concurrency.WithTTL(15))
		if err != nil {
			log.Fatal(err)
		}
		defer s.Close()
		sessions[i] = s
	}
	m1, m2 := concurrency.NewMutex(sessions[0], "/example/lock"), concurrency.NewMutex(sessions[1], "/example/lock")

	if err := m1.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("m1 is locked")
	fmt.Println("m2 is refused:", errors.Is(m2.TryLock(ctx), concurrency.ErrLocked))

	work, token := m1.Context(), m1.Token()
	if _, err := etcdguard.NewKV(etcd, etcdguard.Bearer("", token)).Put(work, "/example/paid", "100 EUR"); err != nil {
		log.Fatal(err)
	}
	if err := m1.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	if err := m2.Lock(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("m2 is locked, with a greater fence:", m2.Token().Fence > token.Fence)
	_, err := etcdguard.NewKV(etcd, etcdguard.Bearer("", token)).Put(ctx, "/example/paid", "200 EUR")
	fmt.Println("a late write of m1 is refused:", err != nil)
	// It prints:
	// m1 is locked
	// m2 is refused: true
	// m2 is locked, with a greater fence: true
	// a late write of m1 is refused: true
}
