package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// streams keeps an urgent item visible at all times, and claims one item every ten seconds. It returns when the
// item was claimed that is less urgent by five.
func (w *world) streams(q *queue.Queue) time.Duration {
	w.Helper()
	w.enqueue(q, "low", queue.Priority(105))
	w.enqueue(q, "urgent")
	begun := time.Now()
	for i := 0; time.Since(begun) < 20*time.Minute; i++ {
		w.enqueue(q, fmt.Sprint("urgent-", i))
		d := w.claim(q)
		w.ok(d.Complete(w.Context()))
		if d.ID() == "low" {
			return time.Since(begun)
		}
		time.Sleep(10 * sec)
	}
	return 0
}

// An item that is not urgent is claimed under a steady stream of urgent ones once it has waited for the
// difference of the priorities; without aging it waits for ever.
func TestAging(t *testing.T) {
	for _, aging := range []time.Duration{0, time.Minute} {
		virtually(t, func(w *world) {
			q := w.queue(queue.Config{Aging: aging, Retention: -1})
			at := w.streams(q)
			if least := 5 * aging; aging == 0 && at > 0 || aging > 0 && (at < least || at > least+30*sec) {
				t.Errorf("with %v: claimed after %v", aging, at)
			}
			st, err := q.Stats(w.Context())
			w.ok(err)
			if old := time.Since(st.OldestReady); aging == 0 && old < 20*time.Minute || aging > 0 && old > 30*sec {
				t.Errorf("with %v: the oldest item is of %v ago", aging, old)
			}
		})
	}
}

// What an item has waited counts from when it is visible. It stays when a worker gives the item back or its
// priority changes, and ends with a failed attempt.
func TestAgeOfItem(t *testing.T) {
	virtually(t, func(w *world) {
		cfg := queue.Config{Aging: time.Minute, HigherFirst: true}
		q := w.queue(cfg)
		w.enqueue(q, "old", queue.Priority(0))
		w.enqueue(q, "later", queue.Priority(0), queue.Delay(3*time.Minute))
		time.Sleep(4 * time.Minute)
		w.ok(w.claim(q).Release(w.Context())) // this process is the keeper, and moves what has vested
		time.Sleep(sec)
		w.enqueue(q, "new", queue.Priority(2))
		w.enqueue(q, "newest", queue.Priority(6))
		next := func(want string) []*queue.Delivery {
			w.Helper()
			all := w.tryClaim(q, 10)
			w.want(ids(all), want)
			return all
		}
		for _, d := range next("newest old new later") {
			w.ok(d.Release(w.Context()))
		}
		w.ok(q.SetPriority(w.Context(), "later", 5))
		at := map[string]int{}
		all := next("later newest old new")
		for i, d := range all {
			at[d.ID()] = i
			if d.ID() != "old" {
				w.ok(d.Release(w.Context()))
			}
		}
		_, err := all[at["old"]].Fail(w.Context(), errors.New("x"),
			queue.Backoff(etcdclaims.ExponentialBackoff(time.Nanosecond, time.Nanosecond)))
		w.ok(err)
		time.Sleep(sec)
		next("later newest new old")
	})
}

// The items of a partition key age, too, and those of one priority keep their order.
func TestAgingOfPartitionKeys(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{Aging: time.Minute, Retention: -1})
		w.enqueue(q, "0", queue.PartitionKey("k"))
		w.enqueue(q, "1", queue.PartitionKey("k"), queue.Priority(102))
		w.enqueue(q, "2", queue.PartitionKey("k"), queue.Priority(102))
		time.Sleep(2*time.Minute + sec)
		w.enqueue(q, "3", queue.PartitionKey("k"))
		w.enqueue(q, "4", queue.PartitionKey("k"), queue.Priority(99))
		var got []string
		for range 5 {
			d := w.claim(q)
			got = append(got, d.ID())
			w.ok(d.Complete(w.Context()))
		}
		w.want(strings.Join(got, " "), "0 4 1 2 3")
	})
}

// All processes of a queue agree on whether its items age. That changes while the queue has no items.
func TestAgingIsAgreedOn(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		cfg := queue.Config{Aging: time.Hour}
		other := w.queue(cfg)
		_, err := other.Enqueue(w.Context(), queue.NewItem(nil))
		if w.wantErr(err, queue.ErrConfig); !strings.Contains(err.Error(), "Config.Aging is 1h0m0s, the queue has 0s") {
			t.Error(err)
		}
		w.ok(q.Close(w.Context()))
		w.wantErr(other.Reconfigure(w.Context()), queue.ErrInUse) // "a" waits
		same := w.queue(queue.Config{})
		w.ok(same.Cancel(w.Context(), "a"))
		w.ok(same.Close(w.Context()))
		w.ok(other.Reconfigure(w.Context()))
		opened, err := queue.Open(w.Context(), etcdClaims(w), "q")
		w.ok(err)
		w.want(opened.Config().Aging, time.Hour)
		w.ok(opened.Close(w.Context()))
		for _, aging := range []time.Duration{-1, time.Microsecond} {
			if _, err := queue.New(etcdClaims(w), queue.Config{Name: "q", Aging: aging}); err == nil || !strings.Contains(err.Error(), "is below 1ms") {
				t.Errorf("%v: %v", aging, err)
			}
		}
	})
}
