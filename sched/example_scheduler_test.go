package sched_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Three processes run one job. Whoever is the owner, each tick is run once.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = etcd.Close() }()

	ticks := make(chan sched.Tick, 100)
	ended := make(chan error, 3)
	for range 3 { // in life these are three processes
		claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example/", Logger: zap.Must(zap.NewProduction())})
		if err != nil {
			fmt.Println(err)
			return
		}
		scheduler, err := sched.New(claims, sched.Config{Group: "billing"})
		if err != nil {
			fmt.Println(err)
			return
		}
		err = scheduler.Add(sched.Job{
			Name:     "invoices",
			Schedule: calendar.Must(calendar.Every(time.Second, 0)), // or Cron("30 2 * * *", In("Europe/Berlin"))
			CatchUp:  sched.All{},
			Overlap:  sched.BufferAll{},
			Handler: func(_ context.Context, tick sched.Tick) error {
				ticks <- tick // ... the work, with tick.ID() and tick.Fence for where it matters ...
				return nil
			},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		go func() {
			err := scheduler.Run(ctx)
			ended <- errors.Join(err, claims.Close(context.Background()))
		}()
	}
	first := <-ticks
	last := first.Nominal
	for range 2 {
		tick := <-ticks
		fmt.Println(tick.Nominal.Sub(last), tick.Fence > first.Fence)
		last = tick.Nominal
	}
	stop()
	for range 3 {
		if err := <-ended; err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// 1s true
	// 1s true
}
