package group_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// A member handles the partitions that it owns until it leaves.
func Example() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-group/", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)

	written := make(chan error)
	member, err := group.Join(ctx, claims, group.Config{Group: "orders", Partitions: 4}, func(ctx context.Context, partition int, claim *etcdclaims.Claim) error {
		// Only the owner of the partition can write this.
		_, err := claim.Txn(ctx).Then(clientv3.OpPut(fmt.Sprint("/orders/", partition), "ready")).Commit()
		written <- err
		<-ctx.Done()
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 4 {
		if err := <-written; err != nil {
			log.Fatal(err)
		}
	}
	resp, err := etcd.Get(ctx, "/orders/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("partitions that are ready:", resp.Count)
	if err := member.Leave(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("left:", errors.Is(member.Err(), group.ErrLeft))
	// Output:
	// partitions that are ready: 4
	// left: true
}

// A new member gets its share, and nothing else moves.
func ExampleBalance() {
	owners := []string{"a", "a", "a", "b", "b", "b"}
	plan := group.Balance([]group.MemberInfo{{Name: "a"}, {Name: "b"}, {Name: "c"}}, owners)
	fmt.Println(plan.Target)
	for _, m := range plan.Moves {
		fmt.Printf("partition %d from %s to %s: %s\n", m.Partition, m.From, m.To, m.Why)
	}
	// Output:
	// [a a c b b c]
	// partition 2 from a to c: a owns 3 partitions, its share is 2
	// partition 5 from b to c: b owns 3 partitions, its share is 2
}

// A caller sends requests to the owner of a partition.
func ExampleView_Call() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example-call/", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)
	cfg := group.Config{Group: "cache", Partitions: 2, Address: "10.0.0.7:80"}
	member, err := group.Join(ctx, claims, cfg, func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	defer member.Leave(ctx)

	view, err := group.Open(ctx, claims, "cache")
	if err != nil {
		log.Fatal(err)
	}
	defer view.Close()
	err = view.Call(ctx, 1, func(ctx context.Context, r group.Route) error {
		fmt.Println("partition", r.Partition, "is at", r.Member.Address)
		return member.Admit(ctx, r.Token) // what the owner does with each request
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: partition 1 is at 10.0.0.7:80
}
