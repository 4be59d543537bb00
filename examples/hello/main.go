// Hello claims a key, loses it, and has its late write refused. Run it with
// go run ./examples/hello, or with -endpoints http://localhost:2379 on your etcd.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/examples/demoetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func main() {
	endpoints := flag.String("endpoints", "", "etcd URLs separated by commas (default: an etcd in this process)")
	flag.Parse()
	at, stop, err := demoetcd.Open(*endpoints)
	if err == nil {
		err = run(context.Background(), at, os.Stdout)
		stop()
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, endpoints []string, out io.Writer) error {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer etcd.Close()
	var clients [2]*etcdclaims.Client // they stand for two processes
	for i, owner := range []string{"alice", "bob"} {
		clients[i], err = etcdclaims.New(etcd, etcdclaims.Config{
			Prefix: "/hello/",
			Owner:  owner,
			Logger: demoetcd.Logger(),
		})
		if err != nil {
			return err
		}
		defer clients[i].Close(ctx)
	}
	alice, bob := clients[0], clients[1]
	first, err := alice.TryAcquire(ctx, "account/7")
	if err != nil {
		return err
	}
	_, held := bob.TryAcquire(ctx, "account/7")
	fmt.Fprintln(out, "bob cannot have it:", held)
	if err := admin.ForceRelease(ctx, bob, "account/7", "alice does not answer"); err != nil {
		return err
	}
	<-first.Done() // at the claim's deadline, if etcd did not answer alice
	fmt.Fprintln(out, "alice learns of it:", first.Err())
	second, err := bob.TryAcquire(ctx, "account/7")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "alice held it with fence %d, bob holds it with fence %d\n", first.Fence(), second.Fence())
	_, late := first.Txn(ctx).Then(clientv3.OpPut("/balance/7", "100 EUR")).Commit()
	fmt.Fprintln(out, "alice's late write is refused:", errors.Is(late, etcdclaims.ErrLost))
	return second.Release(ctx)
}
