package sched_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Jobs share a database that stands one run at a time, in all processes. Another one runs where there is a GPU.
func ExampleJob_limits() {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = etcd.Close() }()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: "/example/limits/", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler, err := sched.New(claims, sched.Config{Group: "reports", Spread: true, Labels: []string{"gpu"}})
	if err != nil {
		fmt.Println(err)
		return
	}

	var running, most atomic.Int64
	ended := make(chan error, 4)
	report := func(context.Context, sched.Tick) error {
		n := running.Add(1)
		for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
		}
		defer running.Add(-1)
		time.Sleep(10 * time.Millisecond)
		ended <- nil
		return nil
	}
	start := calendar.Must(calendar.Cron("@reboot"))
	for _, job := range []sched.Job{
		{Name: "weekly", Schedule: start, Handler: report, Limits: map[string]int{"db": 1}, Priority: 1},
		{Name: "daily", Schedule: start, Handler: report, Limits: map[string]int{"db": 1}}, // before weekly, if both wait
		{Name: "hourly", Schedule: start, Handler: report, Limits: map[string]int{"db": 1}},
		{Name: "train", Schedule: start, RunsOn: []string{"gpu"}, Handler: func(context.Context, sched.Tick) error {
			ended <- nil
			return nil
		}},
	} {
		if err := scheduler.Add(job); err != nil {
			fmt.Println(err)
			return
		}
	}
	returned := make(chan error)
	go func() { returned <- scheduler.Run(ctx) }()
	for range cap(ended) {
		<-ended
	}
	stop()
	if err := errors.Join(<-returned, claims.Close(context.Background())); err != nil {
		fmt.Println(err)
	}
	fmt.Println("reports at a time:", most.Load())
	// Output: reports at a time: 1
}
