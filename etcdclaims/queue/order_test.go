package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// waiting returns the ids of the items that wait, each with its place.
func (w *world) waiting(q *queue.Queue) string {
	w.Helper()
	var out []string
	for info, err := range q.Waiting(w.Context()) {
		w.ok(err)
		out = append(out, info.ID+"/"+string(info.Where))
	}
	return strings.Join(out, " ")
}

// Waiting is in the order in which items are claimed, also while no process claims, which would move
// items as they vest.
func TestWaitingInOrder(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.want(w.waiting(q), "")
		w.enqueue(q, "low", queue.Priority(200), queue.Delay(10*sec))
		w.enqueue(q, "ready", queue.Priority(100))
		w.enqueue(q, "high", queue.Priority(1), queue.Delay(20*sec))
		w.enqueue(q, "last", queue.Priority(300))
		w.enqueue(q, "later", queue.Priority(1), queue.Delay(time.Hour))
		time.Sleep(30 * sec)
		w.want(w.waiting(q), "high/ready ready/ready low/ready last/ready later/later")
		for range 3 {
			for info := range q.Waiting(w.Context()) { // a caller that stops is not called again
				w.want(info.ID, "high")
				break
			}
		}
		// The first claim starts the keeper, which moves what has vested. Until it has, a claim may
		// find an item moved under its hands, and get the others.
		w.ok(q.Pause(w.Context(), "until the keeper has moved them"))
		w.want(ids(w.tryClaim(q, 9)), "")
		w.ok(q.Resume(w.Context()))
		time.Sleep(sec)
		w.want(ids(w.tryClaim(q, 9)), "high ready low last")
	})
}

// Many items that no process has moved are listed page by page.
func TestWaitingOfManyVested(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		const n = 1200
		var items []queue.Item
		for i := range n {
			items = append(items, queue.NewItem(nil, queue.ID(fmt.Sprintf("%04d", i)), queue.Priority(i),
				queue.Delay(time.Duration(n-i)*time.Millisecond)))
		}
		_, err := q.EnqueueAll(w.Context(), items)
		w.ok(err)
		time.Sleep(sec * 10)
		listed := strings.Fields(w.waiting(q))
		w.want(len(listed), n)
		for i, id := range listed {
			w.want(id, fmt.Sprintf("%04d/ready", i))
		}
	})
}

// Items that are enqueued together are claimed in the order in which they are given, whatever the
// order in which they were made.
func TestEnqueueAllInOrder(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		at := time.Now().Add(sec)
		var items []queue.Item
		for _, id := range []string{"e", "d", "c", "b", "a"} { // made first, claimed last
			items = append([]queue.Item{queue.NewItem(nil, queue.ID(id), queue.At(at)), queue.NewItem(nil, queue.ID("now "+id))}, items...)
		}
		_, err := q.EnqueueAll(w.Context(), items)
		w.ok(err)
		w.want(ids(w.tryClaim(q, 9)), "now a now b now c now d now e")
		time.Sleep(2 * sec)
		w.want(ids(w.tryClaim(q, 9)), "a b c d e")
	})
}

// Fail can change the priority in its transaction, also if its reply is lost, and of a dead letter.
func TestFailWithPriority(t *testing.T) {
	for _, lost := range []bool{false, true} {
		virtually(t, func(w *world) {
			q, host := w.process(queue.Config{MaxAttempts: 2})
			w.enqueue(q, "a", queue.Priority(1))
			w.enqueue(q, "b", queue.Priority(2))
			l := w.claim(q)
			w.want(l.ID(), "a")
			if lost {
				host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true})
			}
			out, err := l.Fail(w.Context(), errors.New("x"), queue.Priority(3), queue.Backoff(etcdclaims.ExponentialBackoff(time.Nanosecond, time.Nanosecond)))
			w.ok(err)
			w.want(out.Attempts, 1)
			time.Sleep(sec)
			w.want(w.look(q, "a").Priority, 3)
			got := w.tryClaim(q, 2)
			w.want(ids(got), "b a")
			out, err = got[1].Fail(w.Context(), etcdclaims.Permanent(errors.New("x")), queue.Priority(4))
			w.ok(err)
			w.want(out.Dead, true)
			w.ok(q.Redrive(w.Context(), "a"))
			w.want(w.look(q, "a").Priority, 4)
			_, err = got[0].Fail(w.Context(), errors.New("x"))
			w.ok(err)
			w.want(w.look(q, "b").Priority, 2)
		})
	}
}

// RedriveAll moves many dead letters with each request, in the order in which they died. It counts
// each once, also if replies or requests are lost.
func TestRedriveAllCosts(t *testing.T) {
	testetcd.SkipRace(t)
	for name, fault := range map[string]*claimtest.Fault{
		"no fault": nil, "reply lost": {On: claimtest.Other, Skip: 1, LoseReply: true},
		"request lost": {On: claimtest.Other, Skip: 1, LoseRequest: true},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{MaxAttempts: 1})
				const n = 200
				var items []queue.Item
				for i := range n {
					items = append(items, queue.NewItem(nil, queue.ID(fmt.Sprint(i))))
				}
				_, err := q.EnqueueAll(w.Context(), items)
				w.ok(err)
				var died []string
				for len(died) < n {
					got := w.tryClaim(q, n)
					for i := range got {
						l := got[len(got)-1-i]
						w.ok(l.Discard(w.Context(), "x"))
						died = append(died, l.ID())
						time.Sleep(time.Millisecond)
					}
				}
				w.deleteKeys("/content/7")
				w.want(len(w.under("/content/7")), 0)
				lost := 0
				for _, id := range died {
					if strings.HasPrefix(id, "7") {
						lost++
					}
				}
				sent := len(host.Sent(claimtest.Every))
				if fault != nil {
					host.Inject(*fault)
				}
				redriven, err := q.RedriveAll(w.Context())
				w.ok(err)
				w.want(redriven, n-lost)
				if sent = len(host.Sent(claimtest.Every)) - sent; fault == nil && sent > n/5 {
					t.Errorf("%d requests for %d dead letters", sent, n)
				}
				host.RemoveFaults()
				var got []string
				for some := w.tryClaim(q, n); len(some) > 0; some = w.tryClaim(q, n) {
					got = append(got, strings.Fields(ids(some))...)
				}
				var want []string
				for _, id := range died {
					if !strings.HasPrefix(id, "7") {
						want = append(want, id)
					}
				}
				if fault != nil {
					slices.Sort(got)
					slices.Sort(want)
				}
				w.want(fmt.Sprint(got), fmt.Sprint(want))
			})
		})
	}
}
