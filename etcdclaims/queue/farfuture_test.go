package queue_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// An instant beyond what a key can hold is never reached, and does not count as past.
func TestFarFuture(t *testing.T) {
	for name, wait := range map[string]func(w *world, q *queue.Queue) error{
		"snooze": func(w *world, q *queue.Queue) error {
			w.enqueue(q, "a")
			_, err := w.claim(q).Snooze(w.Context(), math.MaxInt64)
			return err
		},
		"fail": func(w *world, q *queue.Queue) error {
			w.enqueue(q, "a")
			_, err := w.claim(q).Fail(w.Context(), etcdclaims.RetryAfter(errors.New("x"), math.MaxInt64))
			return err
		},
		"delay": func(w *world, q *queue.Queue) error {
			w.enqueue(q, "a", queue.Delay(math.MaxInt64))
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q := w.queue(queue.Config{})
				w.ok(wait(w, q))
				time.Sleep(5 * sec)
				w.want(len(w.tryClaim(q, 1)), 0)
				w.want(w.look(q, "a").Where, queue.Later)
				before, err := w.server.Admin().Get(w.Context(), w.under("/index/later/")[0])
				w.ok(err)
				time.Sleep(time.Minute) // the keeper finds it where it is, and puts it nowhere again
				w.want(len(w.under("/index/later/"))+len(w.under("/index/ready/")), 1)
				after, err := w.server.Admin().Get(w.Context(), w.under("/index/later/")[0])
				w.ok(err)
				w.want(after.Kvs[0].ModRevision, before.Kvs[0].ModRevision)
			})
		})
	}
	t.Run("purge", func(t *testing.T) {
		virtually(t, func(w *world) {
			q := w.queue(queue.Config{})
			w.enqueue(q, "a")
			w.ok(w.claim(q).Discard(w.Context(), "x"))
			n, err := q.Purge(w.Context(), time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC))
			w.ok(err)
			w.want(n, 1)
		})
	})
	t.Run("retention", func(t *testing.T) {
		virtually(t, func(w *world) {
			q := w.queue(queue.Config{Retention: math.MaxInt64})
			w.enqueue(q, "a")
			w.ok(w.claim(q).Complete(w.Context()))
			time.Sleep(time.Minute)
			added, err := q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID("a")))
			w.ok(err)
			w.want(added, false)
		})
	})
}
