package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// outlive cuts a process off for so long that the contexts of its claims with a TTL of 30 s end,
// but the claims do not: 22 s, from right after a renewal.
func outlive(host *claimtest.Host) {
	time.Sleep(11 * sec)
	host.Cut()
	time.Sleep(22 * sec)
	host.Heal()
}

// After an outage that ended the context of a session but not its lease, a worker handles items
// as before. The item that it had under way is given back, and its attempt does not count.
func TestOutageShorterThanLease(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: 30 * sec})
		w.enqueue(q, "under way", queue.MaxAttempts(1))
		runs := map[string]int{}
		stop := w.works(q, queue.WorkerConfig{Concurrency: 1, Timeout: time.Hour, Handler: func(ctx context.Context, l *queue.Delivery) error {
			if runs[l.ID()]++; l.ID() == "under way" && runs[l.ID()] == 1 {
				<-ctx.Done()
			}
			time.Sleep(sec)
			return context.Cause(ctx)
		}})
		defer stop()
		outlive(host)
		time.Sleep(10 * time.Minute)
		w.want(w.look(q, "under way").Where, queue.Completed)
		w.want(runs["under way"], 2)
		w.enqueue(q, "later", queue.MaxAttempts(3))
		time.Sleep(time.Minute)
		w.want(w.look(q, "later").Where, queue.Completed)
		w.want(runs["later"], 1)
	})
}

// What a process has by a session whose context has ended stays its own, and the session is
// closed after the last of it.
func TestItemsOfOutlivedSession(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: 30 * sec})
		other := w.queue(queue.Config{})
		for _, id := range []string{"a", "b", "c"} {
			w.enqueue(q, id)
		}
		had := w.tryClaim(q, 2)
		outlive(host)
		for _, l := range had {
			w.ok(l.Check())
		}
		c := w.claim(q)
		time.Sleep(5 * time.Minute)
		w.ok(c.Context().Err())
		of := func() int { return len(w.under("/worker/")) }
		sessions := of() // that of other retired
		if l, ok := q.Delivery("a"); !ok || l != had[0] {
			t.Error("the delivery is not found")
		}
		w.ok(had[0].Complete(w.Context()))
		w.ok(had[1].Complete(w.Context()))
		time.Sleep(5 * time.Minute)
		w.want(of(), sessions-1)
		w.ok(c.Check())
		w.ok(q.Close(w.Context()))
		w.want(w.look(other, "c").Attempts, 0)
	})
}

// Close gives back the items of a session whose context has ended.
func TestCloseAfterOutage(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: 30 * sec})
		w.enqueue(q, "a")
		w.claim(q)
		outlive(host)
		w.want(len(w.tryClaim(q, 1)), 0) // by another session
		w.ok(q.Close(w.Context()))
		i := w.look(w.queue(queue.Config{}), "a")
		w.want(i.Where, queue.Ready)
		w.want(i.Attempts, 0)
	})
}

// What a claim of unknown outcome took is given back without an attempt, also if the context of
// the session ends before that.
func TestUnknownClaimInOutage(t *testing.T) {
	virtually(t, func(w *world) {
		p := w.queue(queue.Config{})
		w.want(len(w.tryClaim(p, 1)), 0) // keeps house from now on
		q, host := w.process(queue.Config{TTL: 30 * sec})
		w.want(len(w.tryClaim(q, 1)), 0)
		w.enqueue(p, "a", queue.MaxAttempts(1))
		time.Sleep(11 * sec)
		lost := host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true})
		time.AfterFunc(500*time.Millisecond, host.Cut)
		ctx, cancel := context.WithTimeout(w.Context(), sec)
		defer cancel()
		_, err := q.TryClaim(ctx, 1)
		w.wantErr(err, context.DeadlineExceeded)
		w.want(lost.Hits(), 1)
		time.Sleep(21 * sec)
		host.Heal()
		time.Sleep(20 * sec)
		i := w.look(p, "a")
		w.want(i.Where, queue.Ready)
		w.want(i.Attempts, 0)
	})
}
