package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// A worker's note and the end of its lease are seen by others, and go with the lease.
func TestNote(t *testing.T) {
	virtually(t, func(w *world) {
		q, p := w.queue(queue.Config{}), w.queue(queue.Config{})
		w.enqueue(q, "a")
		w.want(w.look(q, "a").Until, time.Time{})
		l := w.claim(q)
		w.ok(l.Note(w.Context(), []byte("half")))
		fence := l.Fence()
		w.ok(l.Note(w.Context(), []byte("more than half")))
		w.want(l.Fence(), fence)
		info := w.look(p, "a")
		w.want(string(info.Note), "more than half")
		if d := time.Until(info.Until); d < ttl-3*sec || d > ttl+sec {
			t.Errorf("the lease ends in %v", d)
		}
		// It moves with the item, and a holder of the handle replaces it.
		_, err := l.Heartbeat(w.Context(), time.Minute)
		w.ok(err)
		w.want(string(w.look(p, "a").Note), "more than half")
		adopted, err := p.Adopt(w.Context(), l.Handle())
		w.ok(err)
		w.ok(adopted.Note(w.Context(), []byte("almost")))
		w.want(string(w.look(p, "a").Note), "almost")
		w.ok(l.Note(w.Context(), []byte("done")))
		w.want(string(w.look(p, "a").Note), "done")
		w.wantErr(l.Note(w.Context(), make([]byte, etcdclaims.MaxNoteBytes+1)), etcdclaims.ErrTooLarge)
		w.ok(l.Release(w.Context()))
		w.want(len(w.under("/note/")), 0)
		w.want(len(w.look(p, "a").Note), 0)
		w.wantErr(l.Note(w.Context(), nil), etcdclaims.ErrReleased)
		w.wantErr(adopted.Note(w.Context(), nil), queue.ErrSuperseded)
	})
}

// The note of a dead worker is neither its successor's nor left behind, and a note that
// comes late changes nothing.
func TestNoteUnderFaults(t *testing.T) {
	for name, fault := range map[string]claimtest.Fault{
		"request lost": {LoseRequest: true},
		"reply lost":   {LoseReply: true},
		"late":         {DelayRequest: 7 * sec},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q := w.queue(queue.Config{})
				victim, host := w.process(queue.Config{})
				w.enqueue(q, "a")
				l := w.claim(victim)
				w.ok(l.Note(w.Context(), []byte("0")))
				fault.On = claimtest.Other
				host.Inject(fault)
				w.ok(l.Note(w.Context(), []byte("1")))
				w.ok(l.Note(w.Context(), []byte("2")))
				time.Sleep(ttl)
				w.want(string(w.look(q, "a").Note), "2")
				host.Kill()
				b, err := q.Claim(w.Context(), 1)
				w.ok(err)
				w.want(len(w.look(q, "a").Note), 0)
				w.ok(b.Deliveries[0].Note(w.Context(), []byte("next")))
				w.want(string(w.look(q, "a").Note), "next")
				host.Heal()
				w.wantErr(l.Note(w.Context(), []byte("3")), etcdclaims.ErrLost)
				w.want(string(w.look(q, "a").Note), "next")
				w.ok(b.Deliveries[0].Complete(w.Context()))
				w.want(len(w.under("/note/")), 0)
			})
		})
	}
}

// A process finds its own leases by the ids of their items, and code below a handler by
// its context.
func TestHeld(t *testing.T) {
	virtually(t, func(w *world) {
		q, p := w.queue(queue.Config{}), w.queue(queue.Config{})
		w.enqueue(q, "a", queue.Topic("t"))
		l := w.claim(q)
		got, ok := q.Delivery("a")
		w.want(ok && got == l, true)
		_, ok = p.Delivery("a")
		w.want(ok, false)
		_, err := l.Heartbeat(w.Context(), time.Minute)
		w.ok(err)
		got, ok = q.Delivery("a")
		w.want(ok && got == l, true)
		got, ok = queue.FromContext(l.Context())
		w.want(ok && got == l, true)
		w.want(got.Queue()+got.Topic()+got.ID(), "qta")
		_, ok = queue.FromContext(w.Context())
		w.want(ok, false)
		w.ok(l.Release(w.Context()))
		_, ok = q.Delivery("a")
		w.want(ok, false)
		ctx, cancel := context.WithCancel(w.Context())
		w.ok(q.Work(ctx, queue.WorkerConfig{Handler: func(ctx context.Context, l *queue.Delivery) error {
			got, ok := queue.FromContext(ctx)
			w.want(ok && got == l, true)
			cancel()
			return nil
		}}))
	})
}

// Sweep recovers what dead workers had, in a process that does not claim, and counts it.
func TestSweep(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		victim, host := w.process(queue.Config{})
		for _, id := range []string{"a", "b", "c"} {
			w.enqueue(q, id, queue.MaxAttempts(map[string]int{"a": 1, "b": 2, "c": 2}[id]))
		}
		w.want(len(w.tryClaim(victim, 3)), 3)
		n, err := q.Sweep(w.Context())
		w.ok(err)
		w.want(n, 0)
		host.Kill()
		time.Sleep(ttl + sec)
		w.want(w.look(q, "a").Where, queue.Taken)
		n, err = q.Sweep(w.Context())
		w.ok(err)
		w.want(n, 3)
		w.want(w.look(q, "a").Where, queue.Dead)
		w.want(w.look(q, "b").Where, queue.Ready)
		n, err = q.Sweep(w.Context())
		w.ok(err)
		w.want(n, 0)
		w.ok(q.Close(w.Context()))
		_, err = q.Sweep(w.Context())
		w.wantErr(err, etcdclaims.ErrClosed)
	})
}

// Nothing is left of a note when its item was given back, although the lease of etcd that the
// note was on lives, for other claims of the process.
func TestNoteOfItemGivenBack(t *testing.T) {
	virtually(t, func(w *world) {
		p := w.queue(queue.Config{})
		claims := claimtest.NewClient(w.T, w.server.Host(w.T), etcdclaims.Config{TTL: ttl})
		q, err := queue.New(claims, queue.Config{Name: "q", TTL: ttl})
		w.ok(err)
		w.enqueue(p, "a")
		w.ok(w.claim(q).Note(w.Context(), []byte("half")))
		_, err = claims.TryAcquire(w.Context(), "another", etcdclaims.TTL(ttl))
		w.ok(err)
		w.want(len(w.under("/note/")), 1)
		w.ok(q.Close(w.Context()))
		w.want(len(w.under("/note/")), 0)
	})
}
