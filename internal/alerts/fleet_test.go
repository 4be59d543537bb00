package alerts

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/telemetry"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// member is what a process of the fleet would have.
type member struct {
	claims *etcdclaims.Client
	gate   fencing.Gate // in front of the store of orders
}

// runFleet runs three members until ctx ends.
func runFleet(ctx context.Context, etcd *clientv3.Client, prefix string, tel *telemetry.Telemetry) error {
	store := tel.Gate("orders", &fencing.Memory{})
	var members []member
	var errs []error
	for i := range 3 {
		// With short leases there is something to see soon.
		cfg := etcdclaims.Config{Prefix: prefix, Owner: fmt.Sprint("member-", i), TTL: etcdclaims.MinTTL, Logger: zap.NewNop()}
		tel.Instrument(&cfg)
		claims, err := etcdclaims.New(etcd, cfg)
		if err != nil {
			errs = append(errs, err)
			break
		}
		members = append(members, member{claims, store})
	}
	var all sync.WaitGroup
	if len(errs) == 0 {
		failed := make([]error, 2)
		for _, m := range members {
			all.Go(func() { m.handleOrders(ctx) })
		}
		all.Go(func() { members[0].mishaps(ctx, tel, members[1]) })
		all.Go(func() { failed[0] = members[0].schedule(ctx, tel) })
		all.Go(func() { failed[1] = members[1].sendMail(ctx, tel) })
		all.Wait()
		errs = append(errs, failed...)
	}
	for _, m := range members {
		errs = append(errs, m.claims.Close(context.WithoutCancel(ctx)))
	}
	return errors.Join(errs...)
}

// handleOrders takes one order after the other, as any member may.
func (m member) handleOrders(ctx context.Context) {
	for ctx.Err() == nil {
		key := fmt.Sprint("orders/", rand.N(3))
		run := m.claims.TryRun
		if rand.N(2) == 0 {
			run = m.claims.Run
		}
		_ = run(ctx, key, func(ctx context.Context) error { // who is refused takes another
			pause(ctx, rand.N(50*time.Millisecond))
			token, _ := fencing.FromContext(ctx)
			return m.gate.Admit(ctx, token)
		})
		pause(ctx, rand.N(50*time.Millisecond))
	}
}

// mishaps lets things go wrong, as they do.
func (m member) mishaps(ctx context.Context, tel *telemetry.Telemetry, other member) {
	defer tel.WatchWork("work", m.claims, "work/", time.Second)()
	shards, err := group.Join(ctx, m.claims, group.Config{Group: "shards", Partitions: 4},
		func(ctx context.Context, _ int, _ *etcdclaims.Claim) error { <-ctx.Done(); return nil })
	if err != nil {
		return
	}
	defer tel.WatchGroup("shards", shards.View())()
	for n := 0; ctx.Err() == nil; n++ {
		m.lateWriter(ctx, other, fmt.Sprint("late/", n))
		m.deadOwner(ctx, other, fmt.Sprint("work/", n))
		// A handler that does not heed its context is a zombie after its drain.
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		_ = m.claims.TryRun(short, "deaf", func(context.Context) error {
			time.Sleep(1500 * time.Millisecond)
			return nil
		})
		cancel()
		pause(ctx, 5*time.Second)
	}
}

// lateWriter writes after another has had its key: it is refused.
func (m member) lateWriter(ctx context.Context, other member, key string) {
	first, err := m.claims.TryAcquire(ctx, key)
	if err != nil {
		return
	}
	token := first.Token()
	_ = first.Release(ctx)
	_ = other.claims.TryRun(ctx, key, func(ctx context.Context) error {
		newer, _ := fencing.FromContext(ctx)
		return other.gate.Admit(ctx, newer)
	})
	_ = m.gate.Admit(ctx, token)
}

// deadOwner begins work and loses it, and another does it.
func (m member) deadOwner(ctx context.Context, other member, key string) {
	works, err := work.New(m.claims, work.Config{})
	if err != nil {
		return
	}
	others, err := work.New(other.claims, work.Config{})
	if err != nil {
		return
	}
	if _, err := works.TryBegin(ctx, key); err != nil {
		return
	}
	if err := admin.ForceRelease(ctx, other.claims, key, "the demonstration plays a dead owner"); err != nil {
		return
	}
	_ = others.TryRun(ctx, key, func(context.Context, *work.Work) error { return nil })
}

// schedule runs a job every second.
func (m member) schedule(ctx context.Context, tel *telemetry.Telemetry) error {
	cfg := sched.Config{Group: "reports", Logger: zap.NewNop()}
	tel.InstrumentScheduler(&cfg)
	s, err := sched.New(m.claims, cfg)
	if err != nil {
		return err
	}
	err = s.Add(sched.Job{Name: "report", Schedule: calendar.Must(calendar.Every(time.Second, 0)), Handler: func(ctx context.Context, _ sched.Tick) error {
		pause(ctx, 20*time.Millisecond)
		return nil
	}})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

var errMailbox = errors.New("no such mailbox")

// sendMail enqueues mail and sends it; some cannot be sent.
func (m member) sendMail(ctx context.Context, tel *telemetry.Telemetry) error {
	q, err := queue.New(m.claims, queue.Config{Name: "mail", MaxAttempts: 1, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer tel.WatchQueue("mail", q, time.Second)()
	var enqueuer sync.WaitGroup
	enqueuer.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			_, _ = q.Enqueue(ctx, queue.NewItem(nil)) // the next one may fare better
			pause(ctx, 200*time.Millisecond)
		}
	})
	err = q.Work(ctx, queue.WorkerConfig{Middleware: []queue.Middleware{tel.Worker}, Handler: func(ctx context.Context, l *queue.Delivery) error {
		pause(ctx, rand.N(100*time.Millisecond))
		if rand.N(20) == 0 {
			return errMailbox
		}
		return nil
	}})
	enqueuer.Wait()
	return errors.Join(err, q.Close(context.WithoutCancel(ctx)))
}

// pause sleeps unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
