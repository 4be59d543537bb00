package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// Items with the same topic and arguments have one id in a period.
func TestUnique(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{Retention: time.Minute})
		nextPeriod := func() { time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) }
		nextPeriod()
		make := func(payload string, opts ...queue.ItemOption) queue.Item {
			return queue.NewItem([]byte(payload), opts...)
		}
		enqueue := func(it queue.Item, want bool) {
			t.Helper()
			added, err := q.Enqueue(w.Context(), it)
			w.ok(err)
			w.want(added, want)
		}
		minutely := func(args ...string) queue.ItemOption { return queue.Unique(time.Minute, args...) }
		first := make("x", minutely("ab", "c"))
		enqueue(first, true)
		enqueue(make("y", minutely("ab", "c")), false)
		enqueue(make("y", minutely("a", "bc")), true)
		enqueue(make("y", minutely("ab", "c"), queue.Topic("t")), true)
		enqueue(make("y", queue.Unique(30*sec, "ab", "c")), true)
		enqueue(make("x", minutely()), true)
		enqueue(make("x", minutely()), false)
		enqueue(make("y", minutely()), true)
		enqueue(make("x", queue.Unique(0)), true)
		enqueue(make("x", queue.Unique(0)), false)
		enqueue(make("y", queue.Unique(0, "x")), true)
		for _, l := range w.tryClaim(q, 10) {
			w.ok(l.Complete(w.Context()))
		}
		time.Sleep(30 * sec)
		enqueue(make("x", minutely("ab", "c")), false) // it is remembered
		enqueue(make("x", queue.Unique(0)), false)
		nextPeriod()
		enqueue(first, false) // with the period in which it was made
		enqueue(make("x", minutely("ab", "c")), true)
		time.Sleep(2 * time.Minute)
		enqueue(make("x", queue.Unique(0)), true)
	})
}

// What cannot be unique is refused before any request.
func TestUniqueRefused(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		forgets, other := w.process(queue.Config{Retention: -1})
		for text, it := range map[string]queue.Item{
			"Retention": queue.NewItem(nil, queue.Unique(time.Hour+1)),
			"negative":  queue.NewItem(nil, queue.Unique(-1)),
			"exclude":   queue.NewItem(nil, queue.Unique(0), queue.ID("a")),
		} {
			_, err := q.Enqueue(w.Context(), it)
			_, operr := q.Op(it)
			for _, err := range []error{err, operr} {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("%v, want an error about %q", err, text)
				}
			}
		}
		if _, err := forgets.Enqueue(w.Context(), queue.NewItem(nil, queue.Unique(sec))); err == nil {
			t.Error("enqueued into a queue that forgets completed items at once")
		}
		w.want(len(host.Sent(claimtest.Every))+len(other.Sent(claimtest.Every)), 0)
		_, err := forgets.Enqueue(w.Context(), queue.NewItem(nil, queue.Unique(0)))
		w.ok(err)
	})
}
