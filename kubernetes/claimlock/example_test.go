package claimlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/kubernetes/claimlock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/leaderelection"
)

// A controller leads, writes under the fence of its leadership, and gives the leadership up. Its
// write is refused from then on.
func Example() {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), DialTimeout: 5 * time.Second})
	if err != nil {
		panic(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		panic(err)
	}
	defer claims.Close(context.Background())

	lock, err := claimlock.New(claims, claimlock.Config{Key: "team-a/controller", Identity: "pod-1"})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // until SIGTERM, in a program
	write := func(claim *etcdclaims.Claim) error {
		_, err := claim.Txn(context.Background()).Then(clientv3.OpPut("/team-a/replicas", "3")).Commit()
		return err
	}
	var led *etcdclaims.Claim
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				led = lock.Claim()
				if err := write(led); err == nil {
					fmt.Println("leads, and writes")
				}
				stop()
			},
			OnStoppedLeading: func() {}, // os.Exit(1), in a program
		},
	})
	if err := write(led); errors.Is(err, etcdclaims.ErrReleased) {
		fmt.Println("does not lead, and is refused")
	}
	// Output:
	// leads, and writes
	// does not lead, and is refused
}
