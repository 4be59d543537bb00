package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// settle enqueues an id that is to be quiet for 30 s, within three minutes, and reports whether that counted.
func (w *world) settle(q *queue.Queue, payload string) bool {
	w.Helper()
	it := queue.NewItem([]byte(payload), queue.ID("a"), queue.Debounce(30*sec, 3*time.Minute))
	added, err := q.Enqueue(w.Context(), it)
	w.ok(err)
	return added
}

// An item that is enqueued again before it has vested is handled once, with the last payload, when it has been
// quiet, also if a request or a reply is lost.
func TestDebounce(t *testing.T) {
	for name, fault := range map[string]*claimtest.Fault{
		"": nil, "reply lost": {LoseReply: true}, "reply lost twice": {LoseReply: true, Times: 2},
		"request lost": {LoseRequest: true},
	} {
		for bounds, cfg := range map[string]queue.Config{"": {}, " with MaxWaiting": {MaxWaiting: 1}} {
			t.Run(name+bounds, func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					q, host := w.process(cfg)
					other := w.queue(cfg)
					w.want(w.settle(q, "1"), true)
					for _, payload := range []string{"2", "3", "4"} {
						time.Sleep(5 * sec)
						if fault != nil && payload == "3" {
							f := *fault
							f.On, f.Skip = claimtest.Other, 1-cfg.MaxWaiting // the first finds that the id is there
							f.Saw = w.sees("debounce")
							defer func(i *claimtest.Injection) { w.want(i.Hits() > 0, true) }(host.Inject(f))
						}
						w.want(w.settle(q, payload), true)
						host.RemoveFaults()
					}
					info := w.look(other, "a")
					w.want(info.Where, queue.Later)
					w.want(info.Vesting.After(time.Now().Add(10*sec)), true)
					b, err := other.Claim(w.Context(), 1)
					w.ok(err)
					w.want(string(b.Deliveries[0].Payload()), "4")
					if d := time.Since(info.Vesting); d < 0 || d > sec {
						t.Errorf("handled %v after it vested", d)
					}
					w.want(w.settle(q, "5"), false) // a worker has it
					w.ok(b.Deliveries[0].Complete(w.Context()))
					w.want(w.settle(q, "6"), false) // it is remembered
					w.want(len(w.under("/later/")), 0)
				})
			})
		}
	}
}

// An item that never is quiet vests in the end, and then is as it is.
func TestDebounceEnds(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{Retention: -1})
		begin := time.Now()
		n := 0
		for n < 30 && w.settle(q, "x") {
			n++
			time.Sleep(9 * sec)
		}
		w.want(n, 20)
		w.want(time.Since(begin).Round(sec), 3*time.Minute)
		w.ok(w.claim(q).Complete(w.Context()))
		w.want(w.settle(q, "y"), true) // it is not remembered
	})
}

// An item that waits for another attempt keeps its payload, and its back-off.
func TestDebounceOfFailed(t *testing.T) {
	for name, end := range map[string]func(*world, *queue.Delivery) (time.Time, error){
		"failed": func(w *world, l *queue.Delivery) (time.Time, error) {
			out, err := l.Fail(w.Context(), context.Canceled)
			return out.Until, err
		},
		"snoozed": func(w *world, l *queue.Delivery) (time.Time, error) { return l.Snooze(w.Context(), time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q := w.queue(queue.Config{})
				w.settle(q, "1")
				time.Sleep(31 * sec)
				until, err := end(w, w.claim(q))
				w.ok(err)
				w.want(w.settle(q, "2"), false)
				info := w.look(q, "a")
				w.want(string(info.Payload), "1")
				w.want(info.Vesting.Equal(until), true)
			})
		})
	}
}

// An item that other processes move again and again is found all the same.
func TestDebounceBesideOthers(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		other := w.queue(queue.Config{})
		w.settle(q, "0")
		var moves atomic.Int64
		host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, Saw: func(req any) {
			if strings.Contains(fmt.Sprint(req), "/worker/") && moves.Add(1) <= 8 { // it is looked up or changed
				time.Sleep(sec)
				w.want(w.settle(other, "theirs"), true)
			}
		}})
		w.want(w.settle(q, "mine"), true)
		w.want(moves.Load() >= 8, true)
		w.want(string(w.look(other, "a").Payload), "mine")
	})
}

// An item with another partition key does not take the place of one that has not vested.
func TestDebounceOfAnotherKey(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		enqueue := func(key string) (bool, error) {
			return q.Enqueue(w.Context(), queue.NewItem([]byte(key), queue.ID("a"), queue.Debounce(sec, sec), queue.PartitionKey(key)))
		}
		_, err := enqueue("k1")
		w.ok(err)
		if added, err := enqueue("k2"); added || err == nil || !strings.Contains(err.Error(), `partition key "k1"`) {
			t.Error(added, err)
		}
		w.want(string(w.look(q, "a").Payload), "k1")
		time.Sleep(2 * sec)
		added, err := enqueue("k2")
		w.ok(err)
		w.want(added, false) // it has vested
	})
}

// An id that others cancel, enqueue or bury meanwhile is treated as what it is for then.
func TestDebounceOfGone(t *testing.T) {
	cancel := func(w *world, q *queue.Queue) { w.ok(q.Cancel(w.Context(), "a")) }
	bury := func(w *world, q *queue.Queue) { w.discard(q, "a") }
	settle := func(w *world, q *queue.Queue) { w.settle(q, "theirs") }
	for name, c := range map[string]struct {
		dead                    bool // before
		atLookup, atEnqueue     func(*world, *queue.Queue)
		overDead, added, letter bool
	}{
		"enqueued anew":     {atLookup: cancel, atEnqueue: settle, added: true},
		"buried":            {atLookup: cancel, atEnqueue: bury, letter: true},
		"buried, over dead": {atLookup: cancel, atEnqueue: bury, overDead: true, added: true},
		"buried before":     {atLookup: func(w *world, q *queue.Queue) { cancel(w, q); bury(w, q) }, letter: true},
		"dead, buried anew": {dead: true, atLookup: cancel, atEnqueue: bury, overDead: true, added: true},
		"dead, enqueued":    {dead: true, atLookup: func(w *world, q *queue.Queue) { cancel(w, q); settle(w, q) }, overDead: true, added: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{Retention: -1})
				other := w.queue(queue.Config{Retention: -1})
				w.enqueue(q, "warm", queue.Delay(time.Hour))
				settle(w, other)
				if c.dead {
					cancel(w, other)
					bury(w, other)
				}
				sent := 0
				host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, Saw: func(any) {
					switch sent++; {
					case sent == 2:
						c.atLookup(w, other)
					case sent == 3 && c.atEnqueue != nil:
						c.atEnqueue(w, other)
					}
				}})
				opts := []queue.ItemOption{queue.ID("a"), queue.Debounce(30*sec, time.Minute)}
				if c.overDead {
					opts = append(opts, queue.OverDead())
				}
				added, err := q.Enqueue(w.Context(), queue.NewItem([]byte("mine"), opts...))
				var dead *queue.DeadLetterError
				w.want(errors.As(err, &dead), c.letter)
				w.want(err != nil, c.letter)
				w.want(added, c.added)
				w.want(string(w.look(other, "a").Payload) == "mine", c.added)
			})
		})
	}
}

// An id that is enqueued twice by one call has the last payload. Debounce takes the place of a delay.
func TestDebounceTogether(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		make := func(payload string, opts ...queue.ItemOption) queue.Item {
			opts = append([]queue.ItemOption{queue.ID("a"), queue.Debounce(30*sec, time.Minute)}, opts...)
			return queue.NewItem([]byte(payload), opts...)
		}
		n, err := q.EnqueueAll(w.Context(), []queue.Item{make("1"), make("2", queue.Delay(time.Hour)), make("3")})
		w.ok(err)
		w.want(n, 1)
		w.want(string(w.look(q, "a").Payload), "3")
		for _, opt := range []queue.ItemOption{queue.Delay(time.Hour), queue.At(time.Now().Add(time.Hour))} {
			w.ok(q.Cancel(w.Context(), "a"))
			_, err := q.Enqueue(w.Context(), make("1", opt))
			w.ok(err)
			w.want(time.Until(w.look(q, "a").Vesting).Round(sec), 30*sec)
		}
	})
}

// An item that a worker takes while it is enqueued again is handled once, as it was.
func TestDebounceBesideClaim(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		worker := w.queue(queue.Config{})
		w.settle(q, "1")
		var l *queue.Delivery
		time.Sleep(time.Until(w.look(q, "a").Vesting) - sec/2)
		saw := w.sees("debounce")
		injected := host.Inject(claimtest.Fault{On: claimtest.Other, Skip: 1, Saw: func(req any) {
			saw(req)
			time.Sleep(sec)
			l = w.claim(worker)
		}})
		w.want(w.settle(q, "2"), false)
		w.want(injected.Hits(), 1)
		w.want(string(l.Payload()), "1")
		w.want(w.look(q, "a").Where, queue.Taken)
		w.want(string(w.look(q, "a").Payload), "1")
		w.want(strings.Join(w.under("/later/"), " "), "")
	})
}

// What cannot be debounced is refused before any request.
func TestDebounceRefused(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		for _, it := range []queue.Item{
			queue.NewItem(nil, queue.Debounce(sec, sec)),
			queue.NewItem(nil, queue.ID("a"), queue.Debounce(0, sec)),
			queue.NewItem(nil, queue.ID("a"), queue.Debounce(2*sec, sec)),
		} {
			if _, err := q.Enqueue(w.Context(), it); err == nil || !strings.Contains(err.Error(), "Debounce") {
				t.Error(err)
			}
		}
		w.want(len(host.Sent(claimtest.Every)), 0)
		_, err := q.Enqueue(w.Context(), queue.NewItem(nil, queue.Unique(0, "a"), queue.Debounce(sec, sec)))
		w.ok(err)
	})
}
