package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// events collects what Watch yields, in the background.
func (w *world) events(q *queue.Queue) func() []queue.Event {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan []queue.Event, 1)
	go func() {
		var all []queue.Event
		for e, err := range q.Watch(ctx) {
			if err != nil {
				w.Errorf("watch: %v", err)
			}
			all = append(all, e)
		}
		done <- all
	}()
	time.Sleep(10 * time.Millisecond)
	return func() []queue.Event {
		time.Sleep(10 * time.Millisecond)
		cancel()
		return <-done
	}
}

func text(events []queue.Event) string {
	var out []string
	for _, e := range events {
		out = append(out, strings.TrimSpace(fmt.Sprint(e.Kind, " ", e.ID)))
	}
	return strings.Join(out, ", ")
}

func TestWatch(t *testing.T) {
	virtually(t, func(w *world) {
		watcher, p := w.queue(queue.Config{}), w.queue(queue.Config{})
		q, host := w.process(queue.Config{})
		w.enqueue(q, "old")
		stop := w.events(watcher)
		l := w.claim(q)
		_, err := l.Fail(w.Context(), errors.New("bad luck"), queue.Backoff(etcdclaims.ExponentialBackoff(sec, sec)))
		w.ok(err)
		time.Sleep(sec)
		l = w.claim(q)
		_, err = l.Heartbeat(w.Context(), time.Minute) // no event
		w.ok(err)
		w.ok(l.Complete(w.Context()))
		w.enqueue(q, "a/b", queue.MaxAttempts(2))
		w.ok(q.SetPriority(w.Context(), "a/b", 7))
		l = w.claim(q)
		w.ok(l.Release(w.Context()))
		_, err = w.claim(q).Snooze(w.Context(), sec)
		w.ok(err)
		time.Sleep(2 * sec)
		w.ok(w.claim(q).Discard(w.Context(), "no use"))
		w.ok(q.Redrive(w.Context(), "a/b"))
		w.ok(q.Pause(w.Context(), "tired"))
		w.ok(q.Resume(w.Context()))
		l = w.claim(q)
		w.want(len(w.tryClaim(p, 1)), 0) // keeps house from now on
		host.Kill()
		time.Sleep(time.Minute + 2*sec)
		w.ok(w.claim(p).Discard(w.Context(), "still no use"))
		_, err = p.Purge(w.Context(), time.Now().Add(sec))
		w.ok(err)
		w.enqueue(p, "late", queue.Delay(sec))
		w.ok(p.Cancel(w.Context(), "late"))
		w.enqueue(p, "taken")
		w.claim(p)
		w.ok(p.Cancel(w.Context(), "taken", queue.AlsoTaken("")))
		time.Sleep(2 * time.Minute) // the notice has ended
		got := stop()
		w.want(text(got), "synced, claimed old, failed old, vested old, claimed old, completed old, enqueued a/b, reordered a/b, claimed a/b, released a/b, "+
			"claimed a/b, snoozed a/b, vested a/b, claimed a/b, died a/b, redriven a/b, paused, resumed, claimed a/b, recovered a/b, claimed a/b, died a/b, purged a/b, "+
			"enqueued late, cancelled late, enqueued taken, claimed taken, cancelled taken")
		find := func(kind queue.EventKind) queue.Event {
			return got[slices.IndexFunc(got, func(e queue.Event) bool { return e.Kind == kind })]
		}
		failed := find("failed")
		w.want(failed.Why, "bad luck")
		w.want(failed.Attempt, 1)
		w.want(failed.Fence, find("claimed").Fence)
		w.want(failed.Owner, l.Holder())
		if failed.Until.IsZero() {
			t.Error("failed until never")
		}
		w.want(find("recovered").Fence, l.Fence())
		w.want(find("died").Why, "discarded: no use")
		w.want(find("paused").Why, "tired")
		for i, e := range got {
			if i > 0 && e.Revision <= got[i-1].Revision {
				t.Errorf("revision %d after %d", e.Revision, got[i-1].Revision)
			}
		}
	})
}

// Neither compaction during a disconnection nor a slow consumer goes unnoticed, and a
// disconnection alone misses nothing.
func TestWatchGaps(t *testing.T) {
	virtually(t, func(w *world) {
		watcher, host := w.process(queue.Config{})
		q := w.queue(queue.Config{})
		stop := w.events(watcher)
		host.Cut()
		w.enqueue(q, "a")
		w.ok(w.claim(q).Complete(w.Context()))
		host.Heal()
		time.Sleep(time.Minute)
		host.Cut()
		host.Break()
		w.enqueue(q, "missed")
		w.enqueue(q, "missed, too")
		w.server.Compact(w.T)
		host.Heal()
		time.Sleep(time.Minute)
		w.enqueue(q, "b")
		w.want(text(stop()), "synced, enqueued a, claimed a, completed a, resynced, enqueued b")
	})
	t.Run("slow", func(t *testing.T) {
		virtually(t, func(w *world) {
			q := w.queue(queue.Config{})
			ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
			defer cancel()
			n, resynced := 0, false
			for e, err := range q.Watch(ctx) {
				w.ok(err)
				n++
				switch e.Kind {
				case queue.EventSynced:
					time.AfterFunc(sec, func() { _, _ = q.Enqueue(w.Context(), queue.NewItem(nil)) })
				case queue.EventResynced:
					resynced = true
					cancel()
				default:
					if n > 2 {
						continue
					}
					for range 30 {
						var items []queue.Item
						for range 200 {
							items = append(items, queue.NewItem(nil))
						}
						_, err := q.EnqueueAll(w.Context(), items)
						w.ok(err)
					}
					synctest.Wait()
				}
			}
			if !resynced || n > 5000 {
				t.Errorf("%d events, resynced %t", n, resynced)
			}
		})
	})
	t.Run("closed", func(t *testing.T) {
		virtually(t, func(w *world) {
			q := w.queue(queue.Config{})
			stop := w.events(q)
			w.ok(q.Close(w.Context()))
			w.want(text(stop()), "synced")
		})
	})
}
