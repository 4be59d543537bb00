package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// sample is what a new etcd is filled with, as programs would.
type sample struct {
	etcd    *clientv3.Client
	clients []*etcdclaims.Client
	cancel  context.CancelFunc // ends what goes on in the background
	wg      sync.WaitGroup
}

func (s *sample) make(ctx context.Context) error {
	ctx, s.cancel = context.WithCancel(ctx)
	for _, part := range []func(context.Context) error{s.claims, s.work, s.queue, s.jobs} {
		if err := part(ctx); err != nil {
			return fmt.Errorf("make the samples: %w", err)
		}
	}
	return nil
}

func (s *sample) close() error {
	if s.cancel != nil {
		s.cancel()
	}
	s.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var err error
	for _, c := range s.clients {
		err = errors.Join(err, c.Close(ctx))
	}
	return err
}

func (s *sample) client(owner string) (*etcdclaims.Client, error) {
	c, err := etcdclaims.New(s.etcd, etcdclaims.Config{Owner: owner})
	if err == nil {
		s.clients = append(s.clients, c)
	}
	return c, err
}

// claims has a few held keys, one with a line, and one with a past.
func (s *sample) claims(ctx context.Context) error {
	first, err := s.client("api-7")
	if err != nil {
		return err
	}
	for i := range 3 {
		past, err := first.TryAcquire(ctx, fmt.Sprint("orders/", i+1))
		if err == nil {
			err = past.Release(ctx)
		}
		if err == nil {
			_, err = first.TryAcquire(ctx, fmt.Sprint("orders/", i+1), etcdclaims.Note([]byte("step 3 of 5")))
		}
		if err != nil {
			return err
		}
	}
	for _, owner := range []string{"api-8", "api-9"} {
		c, err := s.client(owner)
		if err != nil {
			return err
		}
		s.wg.Go(func() {
			for ctx.Err() == nil {
				claim, err := c.Acquire(ctx, "orders/1")
				if err != nil {
					return
				}
				select { // until it is taken away
				case <-claim.Done():
				case <-ctx.Done():
				}
			}
		})
	}
	return nil
}

// work has a record in each state that somebody must look after.
func (s *sample) work(ctx context.Context) error {
	c, err := s.client("worker-1")
	if err != nil {
		return err
	}
	var all []*work.Work
	works, err := work.New(c, work.Config{})
	if err != nil {
		return err
	}
	for i := range 4 {
		w, err := works.TryBegin(ctx, fmt.Sprint("invoices/", i+1))
		if err != nil {
			return err
		}
		all = append(all, w)
	}
	err = all[0].Complete(ctx)
	_, failed := all[1].Fail(ctx, errors.New("the printer is offline"))
	_, dead := all[2].Fail(ctx, etcdclaims.Permanent(errors.New("no such customer")))
	_, orphaned := s.etcd.Delete(ctx, c.OwnKey("invoices/4")) // as etcd does after the death of an owner
	return errors.Join(err, failed, dead, orphaned)
}

// queue has items that wait, and one that nobody can handle.
func (s *sample) queue(ctx context.Context) error {
	c, err := s.client("worker-2")
	if err != nil {
		return err
	}
	q, err := queue.New(c, queue.Config{Name: "thumbnails"})
	if err != nil {
		return err
	}
	if _, err := q.Enqueue(ctx, queue.NewItem([]byte("photo.txt"), queue.ID("poison"))); err != nil {
		return err
	}
	batch, err := q.TryClaim(ctx, 1)
	if err != nil {
		return err
	}
	for _, l := range batch.Deliveries {
		if err := l.Discard(ctx, "not a picture"); err != nil {
			return err
		}
	}
	for i := range 5 {
		if _, err := q.Enqueue(ctx, queue.NewItem(fmt.Appendf(nil, "photo-%d.jpg", i))); err != nil {
			return err
		}
	}
	return q.Close(ctx)
}

// jobs has one that runs every ten seconds, and one that is paused.
func (s *sample) jobs(ctx context.Context) error {
	c, err := s.client("cron-1")
	if err != nil {
		return err
	}
	scheduler, err := sched.New(c, sched.Config{Group: "billing"})
	if err != nil {
		return err
	}
	nothing := func(context.Context, sched.Tick) error { return nil }
	every, err := calendar.Every(10*time.Second, 0)
	if err != nil {
		return err
	}
	nightly, err := calendar.Cron("30 2 * * *")
	if err != nil {
		return err
	}
	err = errors.Join(scheduler.Add(sched.Job{Name: "heartbeat", Schedule: every, Handler: nothing}),
		scheduler.Add(sched.Job{Name: "invoices", Schedule: nightly, Handler: nothing}))
	if err != nil {
		return err
	}
	s.wg.Go(func() { _ = scheduler.Run(ctx) }) // it ends with the samples
	for begun := time.Now(); ; {
		err := scheduler.Pause(ctx, "invoices", "audit of March")
		if err == nil || ctx.Err() != nil || time.Since(begun) > 10*time.Second {
			return err
		}
		select { // until the owner has registered it
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
