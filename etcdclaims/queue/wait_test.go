package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testetcd/deafness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// waited is what a Wait has returned.
type waited struct {
	info queue.Info
	err  error
}

// wait calls Wait, and returns when it follows the item.
func (w *world) wait(q *queue.Queue, id string) <-chan waited {
	w.Helper()
	result := make(chan waited, 1)
	go func() {
		info, err := q.Wait(context.Background(), id)
		result <- waited{info, err}
	}()
	synctest.Wait()
	return result
}

// A result is there for all who wait and look, however the item was completed, and for Retention.
func TestResult(t *testing.T) {
	complete := func(_ *world, _ *queue.Queue, l *queue.Delivery) error { return l.Complete(context.Background()) }
	for name, do := range map[string]func(w *world, q *queue.Queue, l *queue.Delivery) error{
		"complete": complete,
		"complete all": func(_ *world, _ *queue.Queue, l *queue.Delivery) error {
			return queue.Batch{Deliveries: []*queue.Delivery{l}}.CompleteAll(context.Background())
		},
		"adopted": func(w *world, q *queue.Queue, l *queue.Delivery) error {
			adopted, err := q.Adopt(w.Context(), l.Handle())
			w.ok(err)
			w.ok(adopted.SetResult(l.Result()))
			return complete(w, q, adopted)
		},
	} {
		for _, id := range []string{"a", ""} {
			t.Run(name+"/"+id, func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					q, other := w.queue(queue.Config{Retention: time.Minute}), w.queue(queue.Config{})
					it := queue.NewItem([]byte("p"))
					if id != "" {
						it = queue.NewItem([]byte("p"), queue.ID(id))
					}
					_, err := q.Enqueue(w.Context(), it)
					w.ok(err)
					waits := w.wait(other, it.ID())
					l := w.claim(q)
					w.ok(l.SetResult([]byte("first")))
					w.ok(l.SetResult([]byte("second")))
					w.ok(do(w, q, l))
					begin := time.Now()
					got := <-waits
					w.ok(got.err)
					w.want(time.Since(begin) < sec, true)
					for _, info := range []queue.Info{got.info, (<-w.wait(other, it.ID())).info, w.look(other, it.ID())} {
						w.want(string(info.Result), "second")
						w.want(info.Where, queue.Completed)
						w.want(info.Owner, l.Holder())
					}
					time.Sleep(2 * time.Minute)
					w.wantErr((<-w.wait(other, it.ID())).err, queue.ErrNotFound)
				})
			})
		}
	}
}

// The result that a handler sets is kept if the handler returns nil.
func TestResultOfHandler(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		ctx, stop := context.WithCancel(w.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- q.Work(ctx, queue.WorkerConfig{Handler: queue.Of[string](nil).Handler(
				func(_ context.Context, _ string, l *queue.Delivery) error { return errors.New("not a JSON text") },
			), Handlers: map[string]queue.Handler{"add": func(_ context.Context, l *queue.Delivery) error {
				if err := l.SetResult(fmt.Appendf(nil, "result of attempt %d", l.Attempt())); err != nil || l.Attempt() > 1 {
					return err
				}
				return errors.New("once more")
			}}})
		}()
		w.enqueue(q, "b", queue.Topic("add"))
		got := <-w.wait(q, "b")
		w.ok(got.err)
		w.want(string(got.info.Result), "result of attempt 2")
		dead := <-w.wait(q, "a")
		w.wantErr(dead.err, queue.ErrDead)
		w.want(strings.Contains(dead.err.Error(), dead.info.Why) && dead.info.Why != "", true)
		w.want(len(dead.info.History), 1)
		stop()
		w.ok(<-ended)
	})
}

// Wait ends with the item, whatever ends it, and not before.
func TestWait(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(w *world, q *queue.Queue, l *queue.Delivery) error
		want error // nil: it waits on
	}{
		"fail": {do: func(w *world, _ *queue.Queue, l *queue.Delivery) error {
			_, err := l.Fail(w.Context(), errors.New("x"))
			return err
		}},
		"release": {do: func(w *world, _ *queue.Queue, l *queue.Delivery) error { return l.Release(w.Context()) }},
		"snooze": {do: func(w *world, _ *queue.Queue, l *queue.Delivery) error {
			_, err := l.Snooze(w.Context(), time.Hour)
			return err
		}},
		"discard": {want: queue.ErrDead, do: func(w *world, _ *queue.Queue, l *queue.Delivery) error {
			return l.Discard(w.Context(), "x")
		}},
		"cancel": {want: queue.ErrNotFound, do: func(w *world, q *queue.Queue, l *queue.Delivery) error {
			return errors.Join(l.Release(w.Context()), q.Cancel(w.Context(), "a"))
		}},
		"enqueued anew": {want: queue.ErrNotFound, do: func(w *world, q *queue.Queue, l *queue.Delivery) error {
			err := errors.Join(l.Release(w.Context()), q.Cancel(w.Context(), "a"))
			w.enqueue(q, "a")
			return err
		}},
		"close": {want: etcdclaims.ErrClosed, do: func(w *world, q *queue.Queue, _ *queue.Delivery) error {
			return q.Close(w.Context())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, worker := w.queue(queue.Config{}), w.queue(queue.Config{})
				w.enqueue(q, "a")
				l := w.claim(worker)
				waits := w.wait(q, "a")
				w.ok(c.do(w, q, l))
				if c.want != nil {
					w.wantErr((<-waits).err, c.want)
					return
				}
				time.Sleep(10 * time.Minute)
				b, err := worker.Claim(w.Context(), 1)
				w.ok(err)
				select {
				case got := <-waits:
					t.Errorf("the wait has ended: %+v", got)
				default:
				}
				w.ok(b.Deliveries[0].Complete(w.Context()))
				w.ok((<-waits).err)
			})
		})
	}
}

// Results that are too large for one request together are stored with several.
func TestResultsOfBatch(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		for i := range 30 {
			w.enqueue(q, fmt.Sprint(i))
		}
		b := queue.Batch{Deliveries: w.tryClaim(q, 30)}
		for _, l := range b.Deliveries {
			w.ok(l.SetResult(make([]byte, queue.MaxResultBytes)))
		}
		w.ok(b.CompleteAll(w.Context()))
		for _, l := range b.Deliveries {
			w.want(len(w.look(q, l.ID()).Result), queue.MaxResultBytes)
		}
	})
}

// What cannot be waited for, or kept, is refused before any request.
func TestResultRefused(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		forgets, other := w.process(queue.Config{Retention: -1})
		w.enqueue(q, "a")
		w.enqueue(q, "b")
		l, l2 := w.claim(q), w.claim(forgets)
		sent := len(host.Sent(claimtest.Every)) + len(other.Sent(claimtest.Every))
		w.wantErr(l.SetResult(make([]byte, queue.MaxResultBytes+1)), etcdclaims.ErrTooLarge)
		if err := l2.SetResult([]byte("x")); err == nil || !strings.Contains(err.Error(), "Retention") {
			t.Error(err)
		}
		w.ok(l2.SetResult(nil))
		if _, err := forgets.Wait(w.Context(), "a"); err == nil || !strings.Contains(err.Error(), "Retention") {
			t.Error(err)
		}
		_, err := q.Wait(w.Context(), "a\x00")
		w.wantErr(err, etcdclaims.ErrInvalidKey)
		w.want(len(host.Sent(claimtest.Every))+len(other.Sent(claimtest.Every)), sent)
		ctx, cancel := context.WithTimeoutCause(w.Context(), sec, errors.New("had enough"))
		defer cancel()
		if _, err := q.Wait(ctx, "a"); err == nil || !strings.Contains(err.Error(), "had enough") {
			t.Error(err)
		}
		w.ok(l.SetResult(make([]byte, queue.MaxResultBytes)))
		w.ok(l.Complete(w.Context()))
		w.want(len(w.look(q, "a").Result), queue.MaxResultBytes)
	})
}

// A completion with a result takes effect once, whether its request or its reply is lost, and those who wait have it.
func TestResultUnderFaults(t *testing.T) {
	for fault, f := range map[string]claimtest.Fault{
		"reply lost": {LoseReply: true}, "reply lost twice": {LoseReply: true, Times: 2}, "request lost": {LoseRequest: true},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{})
				it := queue.NewItem(nil)
				_, err := q.Enqueue(w.Context(), it)
				w.ok(err)
				waits := w.wait(w.queue(queue.Config{}), it.ID())
				l := w.claim(q)
				w.ok(l.SetResult([]byte("r")))
				f.On = claimtest.Other
				injected := host.Inject(f)
				w.ok(l.Complete(w.Context()))
				w.want(injected.Hits() > 0, true)
				got := <-waits
				w.ok(got.err)
				w.want(string(got.info.Result), "r")
			})
		})
	}
}

// A result that comes too late for a completion is refused: beside it, after one of unknown outcome, and after it.
func TestResultTooLate(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		w.enqueue(q, "a")
		w.enqueue(q, "b")
		a, b := w.claim(q), w.claim(q)
		host.Inject(claimtest.Fault{On: claimtest.Every, DelayRequest: sec})
		done := make(chan error, 2)
		go func() {
			_, err := a.Heartbeat(context.Background(), 0)
			done <- err
		}()
		time.Sleep(sec / 10)
		go func() { done <- a.Complete(context.Background()) }() // it waits for the heartbeat
		time.Sleep(sec / 10)
		w.wantErr(a.SetResult([]byte("late")), etcdclaims.ErrReleased)
		w.ok(<-done)
		w.ok(<-done)
		w.wantErr(a.SetResult([]byte("late")), etcdclaims.ErrReleased)
		w.want(a.Result() == nil, true)

		w.ok(b.SetResult([]byte("first")))
		host.Inject(claimtest.Fault{On: claimtest.Other, LoseRequest: true, Code: codes.PermissionDenied})
		if err := b.Complete(w.Context()); err == nil {
			t.Error("completed without permission")
		}
		w.ok(b.SetResult([]byte("second"))) // it is not completed
		host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true})
		ctx, cancel := context.WithTimeout(w.Context(), sec)
		defer cancel()
		w.wantErr(b.Complete(ctx), etcdclaims.ErrUnknown)
		w.wantErr(b.SetResult([]byte("late")), etcdclaims.ErrReleased)
		w.ok(b.Complete(w.Context()))
		w.want(string(w.look(q, "b").Result), "second")
	})
}

// A watch that delivers the end of an item together with what comes after it does not hide the end.
func TestWaitOfEventsTogether(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		worker := w.queue(queue.Config{Retention: 2 * sec})
		w.enqueue(worker, "a")
		var kept []*mvccpb.Event
		host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, Edit: func(reply any) {
			resp := reply.(*pb.WatchResponse)
			if len(resp.Events) == 0 || !strings.Contains(string(resp.Events[0].Kv.Key), "/content/") {
				return
			}
			kept, resp.Events = append(kept, resp.Events...), nil
			if len(kept) > 1 {
				resp.Events = kept
			}
		}})
		waits := w.wait(q, "a")
		l := w.claim(worker)
		w.ok(l.SetResult([]byte("r")))
		w.ok(l.Complete(w.Context()))
		got := <-waits
		w.ok(got.err)
		w.want(string(got.info.Result), "r")
		w.want(len(kept), 2)
	})
}

// In an outage, or while its watch delivers nothing, a waiting caller learns of the end a little later.
func TestWaitDeaf(t *testing.T) {
	for name, f := range deafness.Kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{})
				worker := w.queue(queue.Config{})
				w.enqueue(worker, "a")
				host.Inject(f)
				waits := w.wait(q, "a")
				time.Sleep(11 * sec) // a watch that is not created is given up
				l := w.claim(worker)
				w.ok(l.Complete(w.Context()))
				begin := time.Now()
				w.ok((<-waits).err)
				if d := time.Since(begin); d > time.Minute+sec {
					t.Errorf("after %v", d)
				}
			})
		})
	}
	t.Run("outage", func(t *testing.T) {
		t.Parallel()
		virtually(t, func(w *world) {
			q, host := w.process(queue.Config{})
			worker := w.queue(queue.Config{})
			w.enqueue(worker, "a")
			waits := w.wait(q, "a")
			host.Cut()
			w.ok(w.claim(worker).Complete(w.Context()))
			time.Sleep(5 * time.Minute)
			host.Heal()
			w.ok((<-waits).err)
		})
	})
}

// What happens between the read of a Wait and its watch ends it, too.
func TestWaitBeforeWatch(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		worker := w.queue(queue.Config{})
		w.enqueue(worker, "a")
		host.Inject(claimtest.Fault{On: claimtest.Watch, DelayRequest: sec, Times: -1})
		waits, begin := w.wait(q, "a"), time.Now()
		w.ok(w.claim(worker).Complete(w.Context()))
		w.ok((<-waits).err)
		if d := time.Since(begin); d < sec || d > 3*sec {
			t.Errorf("after %v", d)
		}
	})
}

// A call that waits for an hour sends one read a minute, and one when it begins.
func TestWaitCosts(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		w.enqueue(w.queue(queue.Config{}), "a")
		ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
		defer cancel()
		before := len(host.Sent(claimtest.Every)) // nothing but Wait sends anything
		_, err := q.Wait(ctx, "a")
		w.wantErr(err, context.DeadlineExceeded)
		if n := len(host.Sent(claimtest.Every)) - before - len(host.Sent(claimtest.Watch)); n < 60 || n > 80 {
			t.Errorf("%d reads in an hour", n)
		}
	})
}

// Thousands of calls that wait share one stream, also if each has metadata of its own.
func TestWaitsShareAStream(t *testing.T) {
	t.Parallel()
	const n = 300
	var streams atomic.Int64
	counts := grpc.WithChainStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer,
			opts ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			if strings.HasSuffix(method, "Watch") {
				streams.Add(1)
			}
			return stream(ctx, desc, cc, method, opts...)
		})
	etcd := testetcd.Shared(t).ClientWith(t, clientv3.Config{DialOptions: []grpc.DialOption{counts}})
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: testetcd.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	q, err := queue.New(claims, queue.Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	items := make([]queue.Item, n)
	for i := range items {
		items[i] = queue.NewItem(nil, queue.ID(fmt.Sprint(i)))
	}
	if _, err := q.EnqueueAll(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, it := range items {
		wg.Go(func() {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "request", it.ID())
			if _, err := q.Wait(ctx, it.ID()); err != nil {
				t.Error(err)
			}
		})
	}
	for done := 0; done < n; {
		b, err := q.Claim(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.CompleteAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		done += len(b.Deliveries)
	}
	wg.Wait()
	if got := streams.Load(); got > 4 {
		t.Errorf("%d streams", got)
	}
	if err := claims.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}
