package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// sees fails unless the first request that it is called with names a key with the text.
func (w *world) sees(text string) func(req any) {
	var once sync.Once
	return func(req any) {
		once.Do(func() {
			if !strings.Contains(fmt.Sprint(req), text) {
				w.Errorf("the fault is of %v, not of %s", req, text)
			}
		})
	}
}

// wantCancelled fails unless the error says who cancelled an item, and why.
func (w *world) wantCancelled(err error) {
	w.Helper()
	w.wantErr(err, queue.ErrCancelled)
	w.wantErr(err, etcdclaims.ErrLost)
	if text := err.Error(); !strings.Contains(text, "by ann: wrong address") {
		w.Errorf("%q does not say who cancelled it, and why", text)
	}
}

// The worker of a cancelled item is told who cancelled it and why, and has it no longer. Its slot is free, and
// the id can be enqueued again.
func TestCancelTaken(t *testing.T) {
	for name, fault := range map[string]*claimtest.Fault{
		"": nil, "reply lost": {LoseReply: true}, "reply lost twice": {LoseReply: true, Times: 2},
		"request lost": {LoseRequest: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				cfg := queue.Config{MaxTaken: 1}
				worker := w.queue(cfg)
				q, host := w.process(cfg)
				w.enqueue(q, "warm")
				w.ok(q.Cancel(w.Context(), "warm"))
				w.enqueue(q, "a")
				l := w.claim(worker)
				w.wantErr(q.Cancel(w.Context(), "a"), queue.ErrTaken)
				if fault != nil {
					f := *fault
					f.On = claimtest.Other
					f.Saw = w.sees("/index/cancelled/")
					defer func(i *claimtest.Injection) { w.want(i.Hits() > 0, true) }(host.Inject(f))
				}
				w.ok(q.Cancel(admin.As(w.Context(), "ann", "order 7"), "a", queue.AlsoTaken("wrong address")))
				begin := time.Now()
				<-l.Context().Done()
				if d := time.Since(begin); d > sec {
					t.Errorf("told after %v", d)
				}
				w.wantCancelled(context.Cause(l.Context()))
				w.wantCancelled(l.Check())
				w.wantCancelled(l.Complete(w.Context()))
				w.wantErr(q.Cancel(w.Context(), "a", queue.AlsoTaken("")), queue.ErrNotFound)
				_, err := worker.Adopt(w.Context(), l.Handle())
				w.wantCancelled(err)
				w.enqueue(q, "a")
				w.want(w.claim(worker).Attempt(), 1)
			})
		})
	}
}

// onNotice is a fault of watches that deliver the notice of a cancelled item.
func onNotice(do func(*pb.WatchResponse)) claimtest.Fault {
	return claimtest.Fault{On: claimtest.Watch, Times: -1, Edit: func(reply any) {
		resp := reply.(*pb.WatchResponse)
		for _, ev := range resp.Events {
			if strings.Contains(string(ev.Kv.Key), "/cancelled/") {
				do(resp)
				return
			}
		}
	}}
}

// Without the watch, the worker is told by its next verb, and by the comparison with etcd.
func TestCancelTakenDeaf(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		worker, host := w.process(queue.Config{})
		host.Inject(onNotice(func(resp *pb.WatchResponse) { resp.Events = nil }))
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		w.enqueue(q, "b")
		a, b := w.claim(worker), w.claim(worker)
		ctx := admin.As(w.Context(), "ann", "")
		w.ok(q.Cancel(ctx, "a", queue.AlsoTaken("wrong address")))
		w.ok(q.Cancel(ctx, "b", queue.AlsoTaken("wrong address")))
		time.Sleep(sec)
		w.wantCancelled(a.Complete(w.Context()))
		w.ok(b.Err())
		time.Sleep(time.Minute + sec)
		w.wantCancelled(b.Err())
	})
}

// A notice that comes late does not end the delivery of another item with the id.
func TestCancelNoticeLate(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		worker, host := w.process(queue.Config{})
		host.Inject(onNotice(func(*pb.WatchResponse) { time.Sleep(20 * sec) }))
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		first := w.claim(worker)
		w.ok(q.Cancel(admin.As(w.Context(), "ann", ""), "a", queue.AlsoTaken("wrong address")))
		w.enqueue(q, "a")
		second := w.claim(worker)
		w.ok(first.Err())
		time.Sleep(21 * sec)
		w.wantCancelled(first.Err())
		time.Sleep(sec)
		w.ok(second.Err())
		w.ok(second.Complete(w.Context()))
	})
}

// An attempt that has ended with a lost reply is not taken for cancelled when a later one of the id is.
func TestCancelOfLaterAttempt(t *testing.T) {
	for name, end := range map[string]func(context.Context, *queue.Delivery) error{
		"completed": func(ctx context.Context, l *queue.Delivery) error { return l.Complete(ctx) },
		"failed": func(ctx context.Context, l *queue.Delivery) error {
			_, err := l.Fail(ctx, errors.New("x"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				worker, host := w.process(queue.Config{Retention: -1})
				q := w.queue(queue.Config{Retention: -1})
				w.enqueue(q, "a")
				first := w.claim(worker)
				host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true})
				ctx, cancel := context.WithTimeout(w.Context(), sec)
				defer cancel()
				w.wantErr(end(ctx, first), etcdclaims.ErrUnknown)
				host.RemoveFaults()
				if name == "completed" {
					w.enqueue(q, "a")
				}
				time.Sleep(30 * sec) // the back-off
				second := w.claim(worker)
				w.ok(q.Cancel(admin.As(w.Context(), "ann", ""), "a", queue.AlsoTaken("wrong address")))
				time.Sleep(sec)
				w.wantCancelled(second.Err())
				w.ok(end(w.Context(), first))
			})
		})
	}
}

// An item that was cancelled before its process knew that it has it is not delivered with the payload of another.
func TestCancelBeforeDelivery(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		worker, host := w.process(queue.Config{})
		q := w.queue(queue.Config{})
		w.enqueue(q, "warm")
		w.ok(w.claim(worker).Complete(w.Context()))
		w.enqueue(q, "a")
		host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true, Saw: w.sees("/taken/")})
		cancelled := false
		host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, Saw: func(req any) {
			if !cancelled && strings.Contains(fmt.Sprint(req), "/content/a") { // what was taken is looked up
				cancelled = true
				w.ok(q.Cancel(w.Context(), "a", queue.AlsoTaken("")))
				w.enqueue(q, "a", queue.Delay(time.Hour))
			}
		}})
		w.want(len(w.tryClaim(worker, 1)), 0)
		w.want(cancelled, true)
		time.Sleep(5 * sec)
		w.want(w.look(q, "a").Where, queue.Later)
	})
}

// The process of a worker whose item was cancelled gives the turn to the next item of the partition key.
func TestCancelTakenPassesTheTurn(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		worker, q := w.queue(queue.Config{}), w.queue(queue.Config{})
		w.enqueue(worker, "a", queue.PartitionKey("k"))
		w.enqueue(worker, "b", queue.PartitionKey("k"))
		time.Sleep(sec)
		l := w.claim(worker)
		w.want(w.look(q, "b").Where, queue.Behind)
		w.ok(q.Cancel(w.Context(), "a", queue.AlsoTaken("")))
		<-l.Done()
		begin := time.Now()
		for w.look(q, "b").Where == queue.Behind {
			time.Sleep(time.Millisecond)
		}
		if d := time.Since(begin); d > 100*time.Millisecond {
			t.Errorf("after %v", d)
		}
	})
}

// A worker that gives the item back while Cancel is under way does not keep it from being cancelled, nor leaves
// anything of it.
func TestCancelTakenBesideWorker(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		worker := w.queue(queue.Config{})
		q, host := w.process(queue.Config{})
		w.enqueue(q, "warm")
		w.ok(q.Cancel(w.Context(), "warm"))
		w.enqueue(q, "a")
		l := w.claim(worker)
		saw := w.sees("/index/cancelled/")
		injected := host.Inject(claimtest.Fault{On: claimtest.Other, Saw: func(req any) {
			saw(req)
			w.ok(l.Release(context.Background()))
		}})
		w.ok(q.Cancel(w.Context(), "a", queue.AlsoTaken("")))
		w.want(injected.Hits(), 1)
		w.want(strings.Join(append(w.under("/content/"), w.under("/index/ready/")...), " "), "")
	})
}

// The handler of a cancelled item is told by its context. Its result has no effect.
func TestCancelHandler(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		ctx, stop := context.WithCancel(w.Context())
		ended, begun, cause := make(chan error), make(chan struct{}, 1), make(chan error)
		go func() {
			ended <- q.Work(ctx, queue.WorkerConfig{Handler: func(ctx context.Context, _ *queue.Delivery) error {
				begun <- struct{}{}
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return ctx.Err()
			}})
		}()
		w.enqueue(q, "a")
		<-begun
		w.ok(q.Cancel(admin.As(w.Context(), "ann", ""), "a", queue.AlsoTaken("wrong address")))
		w.wantCancelled(<-cause)
		stop()
		w.ok(<-ended)
		_, err := q.Look(w.Context(), "a")
		w.wantErr(err, queue.ErrNotFound)
	})
}
