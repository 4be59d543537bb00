package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// Reads that a hung member never answers delay housekeeping, but do not end it: a dead
// worker's item comes back, and the note that the queue has work goes.
func TestHungReadsOfTheKeeper(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		p := w.queue(queue.Config{}) // looks only
		q, host := w.process(queue.Config{})
		w.want(len(w.tryClaim(q, 1)), 0) // keeps house from now on
		victim, dead := w.process(queue.Config{})
		w.enqueue(q, "a")
		w.want(len(w.tryClaim(victim, 1)), 1)
		time.Sleep(sec)
		hung := host.Inject(claimtest.Fault{On: claimtest.Range, LoseRequest: true, Times: 2})
		dead.Cut()
		time.Sleep(15 * time.Minute)
		w.want(hung.Hits(), 2)
		w.want(w.look(p, "a").Where, queue.Ready)
		w.ok(w.claim(q).Complete(w.Context()))
		hung = host.Inject(claimtest.Fault{On: claimtest.Range, LoseRequest: true, Times: 2})
		time.Sleep(15 * time.Minute)
		w.want(hung.Hits(), 2)
		w.want(len(w.under("/active/")), 0)
	})
}

// A claimer that looks up what a request of unknown outcome took goes on after a read that
// a hung member never answers.
func TestHungReadOfTheClaimer(t *testing.T) {
	virtually(t, func(w *world) {
		p := w.queue(queue.Config{})
		w.want(len(w.tryClaim(p, 1)), 0) // keeps house from now on
		q, host := w.process(queue.Config{})
		w.want(len(w.tryClaim(q, 1)), 0)
		w.enqueue(p, "a")
		host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true})
		hung := host.Inject(claimtest.Fault{On: claimtest.Range, LoseRequest: true})
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		b, err := q.TryClaim(ctx, 1)
		w.ok(err)
		w.want(hung.Hits(), 1)
		w.want(len(b.Deliveries), 1)
	})
}

// A claim whose content cannot be read fails soon, whatever its context allows, and the item
// is given back.
func TestHungReadsOfTheClaimer(t *testing.T) {
	virtually(t, func(w *world) {
		p := w.queue(queue.Config{})
		w.want(len(w.tryClaim(p, 1)), 0) // keeps house from now on
		q, host := w.process(queue.Config{})
		w.want(len(w.tryClaim(q, 1)), 0)
		w.enqueue(p, "a")
		host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true})
		hung := host.Inject(claimtest.Fault{On: claimtest.Range, LoseRequest: true, Times: -1})
		ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
		defer cancel()
		begun := time.Now()
		_, err := q.TryClaim(ctx, 1)
		w.wantErr(err, etcdclaims.ErrUnknown)
		if d := time.Since(begun); d > 30*sec {
			t.Errorf("it took %v", d)
		}
		hung.Remove()
		time.Sleep(sec)
		info := w.look(p, "a")
		w.want(info.Where, queue.Ready)
		w.want(info.Attempts, 0)
	})
}

// Calls that only read end soon if a hung member does not answer, whatever their context
// allows.
func TestHungReadsOfCallers(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		w.enqueue(q, "a")
		for name, call := range map[string]func(ctx context.Context) error{
			"look": func(ctx context.Context) error { _, err := q.Look(ctx, "a"); return err },
			"list": func(ctx context.Context) (err error) {
				for _, err = range q.Waiting(ctx) {
				}
				return err
			},
			"sweep": func(ctx context.Context) error { _, err := q.Sweep(ctx); return err },
			"purge": func(ctx context.Context) error { _, err := q.Purge(ctx, time.Now()); return err },
		} {
			hung := host.Inject(claimtest.Fault{On: claimtest.Range, LoseRequest: true})
			ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
			defer cancel()
			begun := time.Now()
			err := call(ctx)
			w.want(hung.Hits(), 1)
			if d := time.Since(begun); d > 10*sec {
				t.Errorf("%s took %v: %v", name, d, err)
			}
		}
	})
}
