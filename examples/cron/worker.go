package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/examples/demoproc"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/sched"
)

// setup is what a process, worker or parent, needs to take part.
type setup struct {
	Name      string
	Endpoints []string
	Prefix    string // of all keys of this run
	For       time.Duration
}

// records is the prefix of what the handler of a job writes.
func (s setup) records(job string) string { return s.Prefix + "ran/" + job + "/" }

// event is what a worker tells its parent.
type event struct {
	Worker string
	Owner  bool   // it admits all ticks from now on
	Began  string // the job of which it begins a run
}

// record is what a handler writes of its run.
type record struct {
	Nominal time.Time
	Attempt int
	Ended   bool // it came to its end; otherwise it has only begun
}

type worker struct {
	setup
	etcd *clientv3.Client
	skew atomic.Int64 // how wrong its clock is
	tell func(event)
}

// group is that of all processes of the example.
const group = "demo"

// withScheduler calls f with a scheduler of the group.
func (s setup) withScheduler(ctx context.Context, etcd *clientv3.Client, cfg sched.Config, f func(*sched.Scheduler) error) error {
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: s.Prefix + "claims/", Owner: s.Name, TTL: ttl, Logger: demoetcd.Logger()})
	if err != nil {
		return err
	}
	scheduler, err := sched.New(claims, cfg)
	if err == nil {
		err = f(scheduler)
	}
	return errors.Join(err, claims.Close(context.WithoutCancel(ctx)))
}

// runWorker is the whole of a worker process.
func runWorker(ctx context.Context, s setup) error {
	etcd, err := demoetcd.Dial(s.Endpoints)
	if err != nil {
		return err
	}
	defer etcd.Close()
	w := &worker{setup: s, etcd: etcd, tell: demoproc.Teller[event]()}
	ctx, orders := demoproc.Orders[time.Duration](ctx) // ends when the parent says so, or is gone
	go func() {
		for {
			select {
			case by := <-orders:
				w.skew.Store(int64(by))
			case <-ctx.Done():
				return
			}
		}
	}()
	cfg := sched.Config{
		Group:  group,
		Logger: demoetcd.Logger(),
		Spread: true, // all processes run the ticks that the owner admits
		Now:    func() time.Time { return time.Now().Add(time.Duration(w.skew.Load())) },
		Hooks:  sched.Hooks{Elected: func(int64) { w.tell(event{Worker: w.Name, Owner: true}) }},
	}
	return s.withScheduler(ctx, etcd, cfg, func(scheduler *sched.Scheduler) error {
		for _, work := range works() {
			work.job.Handler = func(ctx context.Context, t sched.Tick) error { return w.handle(ctx, work, t) }
			if err := scheduler.Add(work.job); err != nil {
				return err
			}
		}
		return scheduler.Run(ctx)
	})
}

// handle is the handler of all jobs.
func (w *worker) handle(ctx context.Context, work work, t sched.Tick) error {
	w.tell(event{Worker: w.Name, Began: t.Job})
	r := record{Nominal: t.Nominal, Attempt: t.Attempt}
	if err := w.write(ctx, t, r); err != nil {
		return err
	}
	select {
	case <-time.After(work.takes):
	case <-ctx.Done():
		return context.Cause(ctx) // nobody can use the result any more
	}
	r.Ended = true
	return cmp.Or(w.write(ctx, t, r), work.err)
}

// write stores the record. Its key contains the fence, so that a second run of the
// tick does not hide the first. The write is guarded by the fence, so that etcd
// refuses it once the run is over for all other processes.
func (w *worker) write(ctx context.Context, t sched.Tick, r record) error {
	token, _ := fencing.FromContext(ctx)
	kv := etcdguard.NewKV(w.etcd, etcdguard.Bearer(w.Prefix+"claims/", token))
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for {
		_, err = kv.Put(ctx, fmt.Sprintf("%s%s/%d/%d", w.records(t.Job), t.ID(), t.Attempt, t.Fence), string(value))
		if !errors.Is(err, fencing.ErrUnknown) || ctx.Err() != nil {
			return err
		}
		// Writing the same once more does no harm.
	}
}
