package queue_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testwork"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What became of an item is told apart: somebody has it already, it was taken over, it was
// given back, its lease was extended, it was completed by another.
func TestOutcomesAreToldApart(t *testing.T) {
	// Each case does something to an item that the victim has. Then a verb of the lease
	// fails, and a call with the handle does.
	for name, c := range map[string]struct {
		do           func(w *world, q, victim *queue.Queue, host *claimtest.Host, l *queue.Delivery)
		verb, handle error // nil: it succeeds
	}{
		"claimed": {do: func(w *world, q, _ *queue.Queue, _ *claimtest.Host, l *queue.Delivery) {
			b, err := q.TryClaim(w.Context(), 1)
			w.ok(err)
			w.want(len(b.Deliveries), 0)
			w.want(b.Taken, 1)
			info := w.look(q, "a")
			w.want(info.Where, queue.Taken)
			w.want(info.Owner, l.Holder())
			w.want(info.Fence, l.Fence())
		}},
		"taken over": {verb: queue.ErrExpired, handle: queue.ErrSuperseded, do: func(w *world, q, _ *queue.Queue, host *claimtest.Host, l *queue.Delivery) {
			w.want(len(w.tryClaim(q, 1)), 0) // and keeps house from now on
			host.Kill()
			b, err := q.Claim(w.Context(), 1)
			w.ok(err)
			host.Heal()
			mine := b.Deliveries[0]
			w.want(mine.Attempt(), 2)
			w.want(mine.History()[0].Ending, "lost")
			w.want(mine.History()[0].Owner, l.Holder())
			w.want(mine.History()[0].Fence, l.Fence())
			if mine.Fence() <= l.Fence() {
				w.Errorf("fence %d after %d", mine.Fence(), l.Fence())
			}
		}},
		"released": {verb: etcdclaims.ErrReleased, handle: queue.ErrSuperseded, do: func(w *world, q, _ *queue.Queue, _ *claimtest.Host, l *queue.Delivery) {
			w.ok(l.Release(w.Context()))
			w.want(w.look(q, "a").Where, queue.Ready)
			w.want(len(w.look(q, "a").History), 0)
		}},
		"claimed again by the same process": {verb: etcdclaims.ErrReleased, handle: queue.ErrSuperseded, do: func(w *world, _, victim *queue.Queue, _ *claimtest.Host, l *queue.Delivery) {
			w.ok(l.Release(w.Context()))
			time.Sleep(time.Millisecond) // a lease's id follows from the instant
			again := w.claim(victim)
			w.want(again.Holder(), l.Holder())
			if again.Fence() <= l.Fence() || again.Token() == l.Token() || again.Handle() == l.Handle() || again.DeliveryID() == l.DeliveryID() {
				w.Errorf("the lease %v is not told from %v", again.Token(), l.Token())
			}
		}},
		"extended": {handle: queue.ErrSuperseded, do: func(w *world, _, _ *queue.Queue, _ *claimtest.Host, l *queue.Delivery) {
			before := l.Deadline()
			until, err := l.Heartbeat(w.Context(), time.Minute)
			w.ok(err)
			if !until.After(before) || !until.Equal(l.Deadline()) {
				w.Errorf("extended from %v to %v, the lease says %v", before, until, l.Deadline())
			}
		}},
		"completed by another": {verb: queue.ErrCompleted, handle: queue.ErrCompleted, do: func(w *world, q, _ *queue.Queue, _ *claimtest.Host, l *queue.Delivery) {
			same, err := q.Adopt(w.Context(), l.Handle())
			w.ok(err)
			w.ok(same.Complete(w.Context()))
		}},
		"failed by another": {verb: queue.ErrSuperseded, handle: queue.ErrSuperseded, do: func(w *world, q, _ *queue.Queue, _ *claimtest.Host, l *queue.Delivery) {
			same, err := q.Adopt(w.Context(), l.Handle())
			w.ok(err)
			_, err = same.Fail(w.Context(), errors.New("x"))
			w.ok(err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q := w.queue(queue.Config{})
				victim, host := w.process(queue.Config{})
				w.enqueue(q, "a")
				l := w.claim(victim)
				handle := l.Handle()
				c.do(w, q, victim, host, l)
				_, err := l.Heartbeat(w.Context(), 0)
				w.wantOnly(err, c.verb)
				if c.verb != nil {
					w.wantOnly(l.Complete(w.Context()), c.verb)
				}
				_, err = q.Adopt(w.Context(), handle)
				w.wantOnly(err, c.handle)
			})
		})
	}
}

// wantOnly wants an error that matches one way to lose an item and no other.
func (w *world) wantOnly(err, want error) {
	w.Helper()
	w.wantErr(err, want)
	for _, other := range []error{queue.ErrExpired, queue.ErrSuperseded, queue.ErrCompleted, etcdclaims.ErrReleased} {
		if !errors.Is(other, want) && errors.Is(err, other) {
			w.Errorf("%v matches %v, too", err, other)
		}
	}
}

// A process renews the lease of a handler that takes many times as long as the lease: the
// item is not given to another, and the attempt counts once.
func TestLongHandlerKeepsItsLease(t *testing.T) {
	virtually(t, func(w *world) {
		q, p := w.queue(queue.Config{}), w.queue(queue.Config{})
		w.enqueue(q, "a")
		done := make(chan int, 2)
		handler := func(_ context.Context, l *queue.Delivery) error {
			for range 100 {
				time.Sleep(ttl / 10)
				w.ok(l.Check())
			}
			done <- l.Attempt()
			return nil
		}
		for _, q := range []*queue.Queue{q, p} {
			defer w.works(q, queue.WorkerConfig{Handler: handler, Timeout: -1})()
		}
		w.want(<-done, 1)
		time.Sleep(sec)
		w.want(w.look(q, "a").Where, queue.Completed)
		w.want(len(done), 0)
	})
}

// Two queues of one client have nothing in common but their prefix.
func TestQueuesAreApart(t *testing.T) {
	virtually(t, func(w *world) {
		a, b := w.queue(queue.Config{Name: "a"}), w.queue(queue.Config{Name: "b"})
		w.enqueue(a, "x")
		w.want(len(w.tryClaim(b, 1)), 0)
		_, err := b.Look(w.Context(), "x")
		w.wantErr(err, queue.ErrNotFound)
		w.enqueue(b, "x") // an id is one item's in each
		w.ok(a.Pause(w.Context(), "maintenance"))
		l := w.claim(b)
		_, err = a.Adopt(w.Context(), l.Handle())
		w.wantErr(err, queue.ErrSuperseded)
		w.ok(l.Complete(w.Context()))
		w.ok(a.Resume(w.Context()))
		w.want(ids(w.tryClaim(a, 2)), "x")
	})
}

// A child that a run of some work enqueues in the transaction of its end is enqueued once,
// though the run fails and another one enqueues the child again; and the request of a
// dead run's end enqueues nothing.
func TestChildOfWorkOnce(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		op := func() clientv3.Op {
			child, err := q.Op(queue.NewItem([]byte("c"), queue.ID("child")))
			w.ok(err)
			return child
		}
		begin := func(c *etcdclaims.Client) *work.Work {
			job, err := testwork.Of(c).TryBegin(w.Context(), "parent")
			w.ok(err)
			return job
		}
		waiting := func() (n int) {
			for info, err := range q.Waiting(w.Context()) {
				w.ok(err)
				w.want(info.ID, "child")
				n++
			}
			return n
		}
		// A run whose Complete is on its way when its machine dies, with what is sent again
		// in the background.
		host := w.server.Host(w.T)
		dead := begin(claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl}))
		held, ended := make(chan struct{}), make(chan struct{})
		over := sync.OnceFunc(func() { close(ended) })
		host.Inject(claimtest.Fault{On: claimtest.Ending, Times: -1, Hold: held, Ended: func(any, error) { over() }})
		ctx, cancel := context.WithTimeout(w.Context(), sec)
		defer cancel()
		w.wantErr(dead.Complete(ctx, op()), etcdclaims.ErrUnknown)
		host.Cut()
		time.Sleep(2 * ttl)
		w.want(waiting(), 0)

		c := etcdClaims(w)
		failed := begin(c)
		w.want(failed.Attempt(), 2)
		host.Heal()
		close(held)
		<-ended
		w.want(waiting(), 0) // the late end was refused as a whole
		_, err := failed.Fail(w.Context(), errors.New("x"), op())
		w.ok(err)
		w.want(waiting(), 1)
		time.Sleep(time.Minute) // the back-off
		last := begin(c)
		w.want(last.Attempt(), 3)
		w.ok(last.Complete(w.Context(), op()))
		w.want(waiting(), 1)
		w.ok(w.claim(q).Complete(w.Context()))
		_, err = testwork.Of(c).TryBegin(w.Context(), "parent")
		w.wantErr(err, work.ErrDone)
		w.want(waiting(), 0)
	})
}
