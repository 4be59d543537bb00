// Command manyticks lets jobs be due at one instant, and writes which code that has run, and how
// often. It is built with -cover -covermode=atomic. There are at most 64 jobs, which the owner
// registers in one request.
//
//	manyticks endpoint prefix jobs directory
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"runtime/coverage"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/sched"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func main() {
	jobs, err := strconv.Atoi(os.Args[3])
	if err == nil {
		err = run(os.Args[1], os.Args[2], jobs, os.Args[4])
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(endpoint, prefix string, jobs int, dir string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix, TTL: time.Hour})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claims.Close(ctx)) }()
	// The clock stands shortly before the ticks until their jobs are registered.
	due := once{time.Now()}
	var come atomic.Bool
	s, err := sched.New(claims, sched.Config{Group: "default", Now: func() time.Time {
		if come.Load() {
			return due.at
		}
		return due.at.Add(-100 * time.Millisecond)
	}})
	if err != nil {
		return err
	}
	var ran sync.WaitGroup
	ran.Add(jobs)
	handler := func(context.Context, sched.Tick) error { ran.Done(); return nil }
	for i := range jobs {
		if err := s.Add(sched.Job{Name: fmt.Sprint("job", i), Schedule: due, Handler: handler}); err != nil {
			return err
		}
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	for s.Stats().NextDue.IsZero() { // the jobs are registered in one request
		time.Sleep(time.Millisecond)
	}
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	come.Store(true)
	ran.Wait()
	for s.Stats().Running > 0 {
		time.Sleep(time.Millisecond)
	}
	return errors.Join(coverage.WriteCountersDir(dir), coverage.WriteMetaDir(dir))
}

// once is a schedule with one instant.
type once struct{ at time.Time }

func (o once) Next(t time.Time) time.Time {
	if t.Before(o.at) {
		return o.at
	}
	return time.Time{}
}

func (o once) String() string { return o.at.String() }
