package sched_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// A job is defined, changed and removed while the group runs. Any process can do it.
func ExampleScheduler_Define() {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = etcd.Close() }()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example/define/", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler, err := sched.New(claims, sched.Config{Group: "reports"})
	if err != nil {
		fmt.Println(err)
		return
	}

	// Each process that runs jobs has the functions of the kinds.
	ran := make(chan string)
	err = scheduler.Handle("report", func(ctx context.Context, tick sched.Tick, payload json.RawMessage) error {
		select {
		case ran <- fmt.Sprintf("%s for %s", tick.Job, payload):
		case <-ctx.Done():
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error)
	go func() { ended <- scheduler.Run(ctx) }()

	// The jobs are data.
	version, err := scheduler.Define(ctx, sched.Definition{
		Name: "weekly", Schedule: "@every 1s", Kind: "report", // or "TZ=Europe/Berlin 30 7 * * MON"
		Payload: json.RawMessage(`{"customer":"acme"}`),
		Overlap: sched.BufferOne{},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-ran)
	_, err = scheduler.Define(ctx, sched.Definition{Name: "weekly", Schedule: "@every 1h", Kind: "report"})
	fmt.Println("a second definition of the name:", errors.Is(err, sched.ErrVersion))
	if err := scheduler.Undefine(ctx, "weekly", version); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("removed")

	stop()
	if err := errors.Join(<-ended, claims.Close(context.Background())); err != nil {
		fmt.Println(err)
	}
	// Output:
	// weekly for {"customer":"acme"}
	// a second definition of the name: true
	// removed
}
