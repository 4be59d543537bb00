//go:build unix

package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ofServices are failures of what is built on claims.
var ofServices = map[string]incident{
	"the workers of a queue are gone": {
		waits: true,
		stage: func(n *night) {
			n.alone()
			n.enqueues()
			n.works("worker-1", func() error { return nil })
			n.reports("handled")
			n.begun()
			n.enqueues()
		},
		see: "doctor", words: []string{
			`"mail": 1 item waits, the oldest for `, "no worker lives: the last ones were worker-1", "start a process that calls Queue.Work on it",
		},
		beyond: func(n *night) {
			n.works("worker-2", func() error { return nil })
			n.reports("handled")
		},
		over: "doctor", gone: "no worker lives",
	},
	"an item is poison": {
		heading: "A poison item",
		stage: func(n *night) {
			n.alone()
			n.enqueues()
			var mended atomic.Bool
			n.works("worker-1", func() error {
				if mended.Load() {
					return nil
				}
				return etcdclaims.Permanent(errors.New("not a JPEG"))
			})
			n.mend = func() { mended.Store(true) }
		},
		see: "doctor", words: []string{`"mail" has 1 dead letter`, " queue dead ls mail"},
		cause: func(n *night, shown string) {
			n.copies(shown, " queue dead ls mail")
			n.finds(n.ok("queue", "dead", "ls", "mail"), "not a JPEG")
			n.mend()
		},
		repair: []string{" queue dead redrive-all mail"},
		beyond: func(n *night) { n.reports("handled") },
		over:   "doctor", gone: "1 dead letter",
	},
	"a queue is paused and forgotten": {
		stage: func(n *night) { n.alone(); n.enqueues(); n.ok("queue", "pause", "mail", "--reason", "INC-311") },
		see:   "doctor", words: []string{`"mail" is paused `, "INC-311"},
		repair: []string{" queue resume mail"},
		over:   "doctor", gone: "is paused",
	},
	"a job is paused and forgotten": {
		heading: "A job did not run",
		stage: func(n *night) {
			n.alone()
			n.ticks("cron-1", 0)
			n.reports("tick")
			n.ok("sched", "pause", "-g", "billing", "invoices", "--reason", "INC-311")
		},
		see: "doctor", words: []string{`"invoices" of group "billing" is paused by operator`, "INC-311"},
		repair: []string{" sched resume -g billing invoices"},
		beyond: func(n *night) {
			n.forget()
			n.reports("tick")
		},
		over: "doctor", gone: "is paused",
	},
	"a clock is ahead": {
		heading: "A job did not run",
		stage:   func(n *night) { n.alone(); n.ticks("cron-1", time.Minute); n.reports("tick") },
		see:     "doctor -o wide", words: []string{
			"the clock of cron-1 is ahead of that of this host by ", "can be the cause of: jobs",
			`"invoices" of group "billing": the high-water mark `, " is ahead of the clock by ",
		},
		never: []string{" sched reset "}, // not before the clock is right
		beyond: func(n *night) {
			n.begun()
			n.ticks("cron-2", 0)
			again, _ := n.shows("doctor", time.Minute, n.has(" sched reset -g billing invoices"))
			n.copies(again.out, " sched reset -g billing invoices")
			n.forget()
			n.reports("tick")
		},
		over: "doctor", gone: "ahead of",
	},
	"a clock is behind": {
		stage: func(n *night) {
			n.alone()
			n.claim(n.client("api-7"), "orders/42")
			n.ticks("cron-1", -time.Minute)
		},
		see: "doctor", words: []string{"the clock of api-7 is ahead of that of cron-1 by "},
		never:  []string{" sched forget "},
		beyond: func(n *night) { n.begun(); n.ticks("cron-1", 0) },
		over:   "doctor", gone: "is ahead of",
	},
	"work is dead": {
		heading: "Work is orphaned, dead, or does not start",
		stage: func(n *night) {
			n.alone()
			work, err := testwork.Of(n.client("billing-1")).TryBegin(n.Context(), "invoices/7")
			n.noErr(err)
			_, err = work.Fail(n.Context(), etcdclaims.Permanent(errors.New("no such customer")))
			n.noErr(err)
		},
		see: "doctor", words: []string{"1 dead, after their last attempt: invoices/7", " work show invoices/7"},
		repair: []string{" work show invoices/7", " work retry invoices/7"},
		beyond: func(n *night) { n.ok("run", "--once", "invoices/7", "--", "true") },
		over:   "doctor", gone: "invoices/7",
	},
	"a member of a group claims nothing": {
		heading: "A group's partitions have no owner",
		stage: func(n *night) {
			n.alone()
			lease, err := n.etcd.Grant(n.Context(), 600)
			n.noErr(err)
			for name, value := range map[string]string{ // of a process that hangs since it joined
				"spec": `{"v":1,"group":"orders","partitions":4}`, "member/pod-3": `{"v":1,"instance":"x","weight":1,"since":"2026-01-01T00:00:00Z"}`,
			} {
				_, err = n.etcd.Put(n.Context(), n.prefix+"group/"+keyspace.Digest("orders")+"/"+name, value, clientv3.WithLease(lease.ID))
				n.noErr(err)
			}
			n.joins("pod-2", 4, 0)
		},
		see: "doctor", words: []string{`group "orders" has 2 members, and nobody owns 2 partitions: `, ", which pod-3 is to have"},
		repair: []string{" group show orders", " group evict "},
		beyond: func(n *night) {
			eventually(n.T, "pod-2 has all partitions", func() bool {
				return len(as[[]partitionView](n.world, "group", "partitions", "orders", "--member", "pod-2")) == 4
			})
		},
		over: "doctor", gone: "pod-3",
	},
}

func (n *night) enqueues() {
	q, err := queue.New(n.client("api-1"), queue.Config{Name: "mail"})
	n.noErr(err)
	_, err = q.Enqueue(n.Context(), queue.NewItem(nil))
	n.noErr(err)
	n.noErr(q.Close(context.Background()))
}

// works begins a program that handles the items, and reports those that are handled.
func (n *night) works(owner string, handle func() error) {
	q, err := queue.New(n.client(owner), queue.Config{Name: "mail"})
	n.noErr(err)
	n.goesOn(func(ctx context.Context) error {
		return q.Work(ctx, queue.WorkerConfig{Handler: func(context.Context, *queue.Delivery) error {
			err := handle()
			if err == nil {
				n.report("handled")
			}
			return err
		}})
	}, func() error { return q.Close(context.Background()) })
}

// ticks begins a program that runs a job every second, by a clock that is wrong.
func (n *night) ticks(owner string, wrong time.Duration) {
	etcd := n.server.Client(n.T)
	now := func() time.Time { return time.Now().Add(wrong) }
	n.Cleanup(clock.Attach(etcd, clock.Clock{Wall: now}))
	c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: n.prefix, Owner: owner})
	n.noErr(err)
	s, err := sched.New(c, sched.Config{Group: "billing", Now: now})
	n.noErr(err)
	n.noErr(s.Add(sched.Job{
		Name: "invoices", Schedule: calendar.Must(calendar.Every(time.Second, 0)),
		Handler: func(context.Context, sched.Tick) error { n.report("tick"); return nil },
	}))
	n.goesOn(s.Run, func() error { return c.Close(context.Background()) })
}

// goesOn begins a program, which n.begun or the test ends.
func (n *night) goesOn(run func(ctx context.Context) error, end func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	var once atomic.Bool
	n.begun = func() {
		if once.Swap(true) {
			return
		}
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			n.Error(err)
		}
		n.noErr(end())
	}
	n.Cleanup(n.begun)
}
