// Cron runs two jobs in a fleet of three members. Each tick runs once in the fleet, whichever
// member has it. The owner of the schedule leaves, and another member admits the next ticks.
//
//	go run ./examples/cron # 12 seconds, in an etcd of its own
//	go run ./examples/cron -endpoints http://localhost:2379
//
// Here the members share a process. In production each process of a service is a member.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func main() { demoetcd.Main("cron", run) }

// fleet is what the members have in common.
type fleet struct {
	etcd   *clientv3.Client
	prefix string // of all keys
	out    io.Writer
	owner  atomic.Pointer[member]
}

type member struct {
	*fleet
	name      string
	claims    *etcdclaims.Client
	scheduler *sched.Scheduler
	stop      context.CancelFunc
}

func run(ctx context.Context, etcd *clientv3.Client, prefix string, out io.Writer) error {
	f := &fleet{etcd: etcd, prefix: prefix, out: out}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var last *member
	var running sync.WaitGroup
	failed := make([]error, 3)
	for i := range failed {
		m, err := f.join(fmt.Sprint("member-", i+1))
		if err != nil {
			return err
		}
		defer m.claims.Close(context.WithoutCancel(ctx))
		running.Go(func() {
			mine, stop := context.WithCancel(ctx)
			m.stop = stop
			failed[i] = m.scheduler.Run(mine)
		})
		last = m
	}
	if err := wait(ctx, 5*time.Second); err != nil {
		return err
	}
	owner := f.owner.Load()
	if owner == nil {
		return errors.New("no member has become the owner")
	}
	fmt.Fprintln(out, owner.name, "leaves")
	owner.stop()
	if err := wait(ctx, 6*time.Second+500*time.Millisecond); err != nil {
		return err
	}
	err := last.report(ctx) // a member that does not run can ask, too
	stop()
	running.Wait()
	return errors.Join(append(failed, err)...)
}

// join returns a member with both jobs.
func (f *fleet) join(name string) (*member, error) {
	m := &member{fleet: f, name: name}
	var err error
	m.claims, err = etcdclaims.New(f.etcd, etcdclaims.Config{Prefix: f.prefix + "claims/", Owner: name, Logger: demoetcd.Logger()})
	if err != nil {
		return nil, err
	}
	m.scheduler, err = sched.New(m.claims, sched.Config{
		Group:  "demo",
		Logger: demoetcd.Logger(),
		Spread: true, // all members run the ticks that the owner admits
		Hooks: sched.Hooks{Elected: func(int64) {
			fmt.Fprintln(f.out, name, "is the owner now, and admits all ticks")
			f.owner.Store(m)
		}},
	})
	if err != nil {
		return nil, err
	}
	err = m.scheduler.Add(sched.Job{
		Name:      "count",
		Schedule:  calendar.Must(calendar.Every(time.Second, 0)),
		CatchUp:   sched.All{Max: 1000},       // late ticks run, too
		Overlap:   sched.BufferAll{Max: 1000}, // one after the other
		Guarantee: sched.AtLeastOnce,          // a tick whose process dies runs again
		Retry:     sched.Retry{Max: 5},
		History:   1000,
		Handler:   m.count,
	})
	return m, errors.Join(err, m.scheduler.Add(sched.Job{
		Name:     "report",
		Schedule: calendar.Must(calendar.Cron("*/5 * * * * *")), // a sixth field, for seconds, comes first
		Handler: func(_ context.Context, t sched.Tick) error {
			_, err := fmt.Fprintf(f.out, "%s reports for %s\n", name, t.Nominal.Format(time.TimeOnly))
			return err
		},
	}))
}

// count records the tick. Its key is the same for each attempt, so a repeated write does no
// harm. Once the run is over for all other members, etcd refuses the write.
func (m *member) count(ctx context.Context, t sched.Tick) error {
	token, _ := fencing.FromContext(ctx)
	kv := etcdguard.NewKV(m.etcd, etcdguard.Bearer(m.prefix+"claims/", token))
	_, err := kv.Put(ctx, m.prefix+"counted/"+t.ID(), m.name)
	return err
}

// report compares what the handlers wrote with the ticks that were due. It returns an error
// if they differ.
func (m *member) report(ctx context.Context) error {
	if err := m.scheduler.Pause(ctx, "count", "the end of the run"); err != nil {
		return err
	}
	info, err := m.scheduler.Inspect(ctx, "count")
	for ; err == nil && len(info.Waiting)+len(info.Running) > 0; info, err = m.scheduler.Inspect(ctx, "count") {
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	resp, err := m.etcd.Get(ctx, m.prefix+"counted/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	due := int64(info.High.Truncate(time.Second).Sub(info.Since.Truncate(time.Second)) / time.Second)
	fmt.Fprintf(m.out, "%d ticks of count were due, %d ran\n", due, resp.Count)
	if due == 0 || due != resp.Count {
		return errors.New("ticks were lost or doubled")
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
