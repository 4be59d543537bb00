package etcdclaims_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// returning is a program that an outage interrupts.
type returning struct {
	// start begins it, with a client of its own that is cut off later. It tells
	// worked whenever it has done something that needs etcd.
	start func(ctx context.Context, w *world, c *etcdclaims.Client, worked func())
	// give has work for it, from a process that is not cut off, soon after etcd is back.
	give func(ctx context.Context, w *world, other *etcdclaims.Client)
}

func interrupted() map[string]returning {
	return map[string]returning{
		"a waiter in line": {
			start: func(ctx context.Context, w *world, c *etcdclaims.Client, worked func()) {
				go func() {
					if _, err := c.Acquire(ctx, "line"); err == nil {
						worked()
					}
				}()
			},
			give: func(ctx context.Context, w *world, other *etcdclaims.Client) {
				_, _ = other.ReleaseAll(ctx)
			},
		},
		"Watch": {
			start: func(ctx context.Context, _ *world, c *etcdclaims.Client, worked func()) {
				go func() {
					for ev := range c.Watch(ctx, "watched") {
						if ev.Kind == etcdclaims.Claimed {
							worked()
						}
					}
				}()
			},
			give: func(_ context.Context, w *world, other *etcdclaims.Client) { tryClaim(w.T, other, "watched") },
		},
		"Singleton": {
			start: func(ctx context.Context, _ *world, c *etcdclaims.Client, worked func()) {
				go func() {
					_ = middleware.Singleton(ctx, c, "leader", func(ctx context.Context) error {
						worked()
						<-ctx.Done()
						return ctx.Err()
					}, middleware.SingletonConfig{})
				}()
			},
		},
		"a scheduler": {
			start: func(ctx context.Context, w *world, c *etcdclaims.Client, worked func()) {
				s, err := sched.New(c, sched.Config{Group: "default"})
				noErr(w.T, err)
				noErr(w.T, s.Add(sched.Job{Name: "j", Schedule: calendar.Must(calendar.Every(time.Second, 0)), Handler: func(context.Context, sched.Tick) error {
					worked()
					return nil
				}}))
				go func() { _ = s.Run(ctx) }()
			},
		},
		"a group's member": {
			start: func(ctx context.Context, w *world, c *etcdclaims.Client, worked func()) {
				m, err := group.Join(ctx, c, group.Config{Group: "g", Partitions: 2}, func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
					worked()
					<-ctx.Done()
					return ctx.Err()
				})
				noErr(w.T, err)
				context.AfterFunc(ctx, func() { _ = m.Leave(context.Background()) })
			},
		},
		"a queue's worker": {
			start: func(ctx context.Context, w *world, c *etcdclaims.Client, worked func()) {
				q, err := queue.New(c, queue.Config{Name: "q"})
				noErr(w.T, err)
				w.Cleanup(func() { _ = q.Close(context.Background()) })
				go func() {
					_ = q.Work(ctx, queue.WorkerConfig{Handler: func(context.Context, *queue.Delivery) error { worked(); return nil }})
				}()
			},
			give: func(ctx context.Context, w *world, other *etcdclaims.Client) {
				q, err := queue.New(other, queue.Config{Name: "q"})
				noErr(w.T, err)
				w.Cleanup(func() { _ = q.Close(context.Background()) })
				_, err = q.Enqueue(ctx, queue.NewItem(nil))
				noErr(w.T, err)
			},
		},
	}
}

// began starts the program, and returns when it did something that needs etcd.
func (r *returning) began(ctx context.Context, w *world, c *etcdclaims.Client) <-chan time.Time {
	worked := make(chan time.Time, 10_000)
	r.start(ctx, w, c, func() {
		select {
		case worked <- time.Now():
		default:
		}
	})
	return worked
}

// again fails the test unless a program works soon after the end of the outage.
func again(w *world, worked <-chan time.Time, returned time.Time, soon time.Duration) {
	w.Helper()
	limit := time.NewTimer(5 * time.Minute)
	defer limit.Stop()
	for {
		select {
		case at := <-worked:
			if at.Before(returned) {
				continue
			}
			if d := at.Sub(returned); d > soon {
				w.Errorf("works after %v", d)
			}
		case <-limit.C:
			w.Error("does not work within five minutes")
		}
		return
	}
}

// Whatever is built on a client works again within 3 s of the end of an outage that is
// longer than every TTL and every pause of gRPC.
func TestEverythingReturnsSoonAfterOutage(t *testing.T) {
	t.Parallel()
	for name, r := range interrupted() {
		for _, long := range []time.Duration{2 * time.Minute, 10 * time.Minute} {
			if long > 2*time.Minute && !testetcd.Long() {
				continue
			}
			virtualCase(t, name+", "+long.String(), func(t *testing.T, w *world) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				other := w.peer()
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				tryClaim(t, other, "line")
				worked := r.began(ctx, w, c)
				time.Sleep(10 * sec)
				host.Kill()
				time.Sleep(long)
				host.Heal()
				returned := time.Now()
				time.Sleep(sec)
				if r.give != nil {
					r.give(ctx, w, other)
				}
				again(w, worked, returned, 3*sec)
				cancel()
				time.Sleep(20 * sec)
			})
		}
	}
}

// The same with a process of etcd and clientv3's default configuration. Its leases begin
// anew with it, so this is about programs that need no key of their past.
func TestReturnsSoonAfterOutageOfAProcess(t *testing.T) {
	testetcd.SkipUnlessLong(t, "has an outage of two minutes")
	t.Parallel()
	etcd := testetcd.StartProcess(t, testetcd.NoSync())
	all := interrupted()
	client := func() *etcdclaims.Client {
		raw, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints(), Logger: zap.NewNop()})
		noErr(t, err)
		t.Cleanup(func() { _ = raw.Close() })
		c, err := etcdclaims.New(raw, etcdclaims.Config{TTL: 15 * sec})
		noErr(t, err)
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	other, w := client(), &world{&testclaims.World{T: t}}
	worked := map[string]<-chan time.Time{}
	for _, name := range []string{"Watch", "a queue's worker"} {
		r := all[name]
		worked[name] = r.began(ctx, w, client())
	}
	time.Sleep(5 * sec)
	etcd.Kill(t)
	time.Sleep(2 * time.Minute)
	etcd.Restart(t)
	returned := time.Now()
	for name := range worked {
		all[name].give(ctx, w, other)
	}
	for _, did := range worked {
		// In real time the machine may be busy. A client that left it to gRPC to connect again
		// would be later: after two minutes gRPC waits for about another one.
		again(w, did, returned, 15*sec)
	}
	cancel()
}
