package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
)

const year = 365 * 24 * time.Hour

// impatient returns access to the queue from a machine of its own, by a client that allows
// short leases.
func (w *world) impatient() (*queue.Queue, *claimtest.Host) {
	w.Helper()
	host := w.server.Host(w.T)
	q, err := queue.New(claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl, AllowShortTTL: true}), queue.Config{Name: "q", TTL: ttl})
	w.ok(err)
	w.Cleanup(func() {
		host.Heal()
		_ = q.Close(w.Context())
	})
	return q, host
}

// Items claimed for 2 s are given away within 3 s of their worker's death, and those that
// it claimed for longer are not.
func TestShortestLease(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		victim, host := w.impatient()
		w.want(len(w.tryClaim(q, 1)), 0) // and keeps house from now on
		time.Sleep(sec)
		w.enqueue(q, "short")
		w.enqueue(q, "long")
		short, err := victim.TryClaim(w.Context(), 1, queue.TTL(2*sec))
		w.ok(err)
		w.want(ids(short.Deliveries), "short")
		w.want(ids(w.tryClaim(victim, 1)), "long")
		time.Sleep(time.Minute)
		w.ok(short.Deliveries[0].Check()) // it is renewed
		host.Kill()
		begin := time.Now()
		b, err := q.Claim(w.Context(), 1)
		w.ok(err)
		w.want(ids(b.Deliveries), "short")
		if d := time.Since(begin); d > 3*sec {
			t.Errorf("recovered after %v", d)
		}
		w.want(w.look(q, "long").Where, queue.Taken)
	})
}

// A lease of a year survives an outage of ten minutes, which ends those of ten seconds, and
// nobody has its item meanwhile.
func TestLongestLease(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		away, host := w.process(queue.Config{})
		w.enqueue(q, "long")
		w.enqueue(q, "short")
		b, err := away.TryClaim(w.Context(), 1, queue.TTL(year))
		w.ok(err)
		long, short := b.Deliveries[0], w.claim(away)
		if d := long.Remaining(time.Now()); d < year*8/10 || d > year {
			t.Errorf("the lease lasts for %v", d)
		}
		w.want(len(w.tryClaim(q, 1)), 0) // and keeps house from now on
		host.Cut()
		time.Sleep(10 * time.Minute)
		w.want(ids(w.tryClaim(q, 2)), "short")
		w.ok(long.Check())
		w.wantErr(short.Check(), etcdclaims.ErrLost)
		host.Heal()
		time.Sleep(time.Minute)
		w.ok(long.Complete(w.Context()))
		w.wantErr(short.Complete(w.Context()), queue.ErrExpired)
	})
}

// Durations out of bounds are refused, change nothing and take nothing.
func TestLeaseOutOfBounds(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		impatient, _ := w.impatient()
		w.enqueue(q, "a")
		w.enqueue(q, "b")
		f := func(q *queue.Queue, d time.Duration) {
			t.Helper()
			b, err := q.TryClaim(w.Context(), 1, queue.TTL(d))
			if err == nil || len(b.Deliveries) > 0 || errors.Is(err, etcdclaims.ErrUnknown) {
				t.Errorf("a claim for %v: %d items, %v", d, len(b.Deliveries), err)
			}
		}
		f(q, -sec)
		f(q, 2*sec) // the client does not allow it
		f(q, etcdclaims.MinTTL-time.Millisecond)
		f(q, year+sec)
		f(impatient, 2*sec-time.Millisecond)
		l := w.claim(q)
		until, fence := l.Deadline(), l.Fence()
		for _, d := range []time.Duration{-sec, 2 * sec, year + sec} {
			if _, err := l.Heartbeat(w.Context(), d); err == nil {
				t.Errorf("a heartbeat for %v was accepted", d)
			}
		}
		w.want(l.Deadline(), until)
		w.want(l.Fence(), fence)
		w.ok(l.Check())
		w.ok(l.Complete(w.Context()))
		w.want(len(w.under("/taken/")), 0)
	})
}

// An item whose lease was extended for a minute stays with its dead worker for that
// minute, and another item of that worker for its ten seconds.
func TestHeartbeatDurationHolds(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		victim, host := w.process(queue.Config{})
		w.enqueue(q, "extended")
		w.enqueue(q, "other")
		l := w.claim(victim)
		w.want(ids(w.tryClaim(victim, 1)), "other")
		until, err := l.Heartbeat(w.Context(), time.Minute)
		w.ok(err)
		w.want(len(w.tryClaim(q, 1)), 0) // and keeps house from now on
		host.Kill()
		begin := time.Now()
		for _, want := range []struct {
			id          string
			least, most time.Duration
		}{{"other", 5 * sec, ttl + sec}, {"extended", 50 * sec, time.Minute + sec}} {
			b, err := q.Claim(w.Context(), 1)
			w.ok(err)
			w.want(ids(b.Deliveries), want.id)
			if d := time.Since(begin); d < want.least || d > want.most {
				t.Errorf("%s was given away after %v, want %v to %v", want.id, d, want.least, want.most)
			}
		}
		if !time.Now().After(until) {
			t.Errorf("given away at %v, the lease was said to last until %v", time.Now(), until)
		}
	})
}
