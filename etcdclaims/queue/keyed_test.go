package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// tenant enqueues items of a partition key, which the first letter of their ids names.
func (w *world) tenant(q *queue.Queue, ids ...string) {
	w.Helper()
	for _, id := range ids {
		w.enqueue(q, id, queue.PartitionKey(id[:1]))
	}
}

// claimWaiting claims one item, which need not be there yet.
func (w *world) claimWaiting(q *queue.Queue) *queue.Delivery {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	b, err := q.Claim(ctx, 1)
	w.ok(err)
	return b.Deliveries[0]
}

// The items of a key are handled one after the other, in the order of the queue, and delay no other key. An item
// that failed, was snoozed or released keeps its turn.
func TestPartitionKeys(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{MaxAttempts: 2})
		w.tenant(q, "a1", "a2", "a3", "a4", "b1")
		w.enqueue(q, "c")
		got := w.tryClaim(q, 5)
		w.want(ids(got), "a1 b1 c")
		w.want(got[0].PartitionKey()+got[2].PartitionKey(), "a")
		w.want(w.look(q, "a2").Where, queue.Behind)
		w.want(w.look(q, "a2").PartitionKey, "a")
		st, err := q.Stats(w.Context())
		w.ok(err)
		w.want(st.Behind, 3)
		var waiting []string
		for info, err := range q.Waiting(w.Context()) {
			w.ok(err)
			waiting = append(waiting, info.ID)
		}
		w.want(strings.Join(waiting, " "), "a2 a3 a4")
		w.ok(got[0].Complete(w.Context()))
		got = w.tryClaim(q, 5)
		w.want(ids(got), "a2")
		w.ok(got[0].Release(w.Context()))
		_, err = w.claim(q).Snooze(w.Context(), sec)
		w.ok(err)
		w.want(ids(w.tryClaim(q, 5)), "")
		for range 2 {
			l := w.claimWaiting(q)
			w.want(l.ID(), "a2")
			_, err = l.Fail(w.Context(), errors.New("x"))
			w.ok(err)
		}
		w.want(w.look(q, "a2").Where, queue.Dead)
		w.ok(q.SetPriority(w.Context(), "a4", 1))
		w.ok(q.Cancel(w.Context(), "a3"))
		w.want(w.claimWaiting(q).ID(), "a4")
	})
}

// Two processes take no more items of a key than KeyLimit, and each item of it in the end.
func TestKeyLimitAcrossProcesses(t *testing.T) {
	virtually(t, func(w *world) {
		cfg := queue.Config{KeyLimit: 2}
		a, b := w.queue(cfg), w.queue(cfg)
		w.tenant(a, "a1", "a2", "a3", "a4", "a5")
		time.Sleep(sec)
		got := slices.Concat(w.tryClaim(a, 5), w.tryClaim(b, 5))
		w.want(len(got), 2)
		for done := 0; done < 5; done++ {
			w.ok(got[0].Complete(w.Context()))
			if got = got[1:]; done < 3 {
				got = append(got, w.claimWaiting([]*queue.Queue{a, b}[done%2]))
			}
		}
		w.want(len(w.under("lane/")), 0)
	})
}

// As many items as the limit are visible, also if these are many.
func TestHighKeyLimit(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{KeyLimit: 40})
		items := make([]queue.Item, 50)
		for i := range items {
			items[i] = queue.NewItem(nil, queue.PartitionKey("a"))
		}
		_, err := q.EnqueueAll(w.Context(), items)
		w.ok(err)
		w.want(len(w.tryClaim(q, 60)), 40)
	})
}

// An item of a killed worker keeps its turn, and the key goes on with the next one once that is dead.
func TestKilledWorkerOfAKey(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{MaxAttempts: 2})
		w.tenant(q, "a1", "a2")
		for range 2 {
			victim, host := w.process(queue.Config{})
			w.want(w.claimWaiting(victim).ID(), "a1")
			w.want(len(w.tryClaim(q, 5)), 0)
			host.Kill()
		}
		w.want(w.claimWaiting(q).ID(), "a2")
		w.want(w.look(q, "a1").Where, queue.Dead)
	})
}

// The process that ended an item, and was killed right after that, is not missed.
func TestKilledBeforeTheNextTurn(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.tenant(q, "c1", "a1", "a2")
		w.want(w.claim(q).ID(), "c1")
		time.Sleep(sec) // it is the keeper
		victim, host := w.process(queue.Config{})
		l := w.claimWaiting(victim)
		next := make(chan string)
		go func() {
			b, _ := q.Claim(w.Context(), 1)
			next <- ids(b.Deliveries)
		}()
		time.Sleep(sec)
		host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, LoseRequest: true})
		w.ok(l.Complete(w.Context()))
		host.Kill()
		begin := time.Now()
		w.want(<-next, "a2")
		if took := time.Since(begin); took > sec {
			t.Errorf("the next turn came after %v", took)
		}
	})
}

// The request that gives an item its turn takes effect once, whether it or its reply is lost, or it comes late.
func TestTurnsUnderFaults(t *testing.T) {
	for name, fault := range map[string]func(late chan struct{}) claimtest.Fault{
		"reply lost":   func(chan struct{}) claimtest.Fault { return claimtest.Fault{LoseReply: true} },
		"request lost": func(chan struct{}) claimtest.Fault { return claimtest.Fault{LoseRequest: true} },
		"request late": func(late chan struct{}) claimtest.Fault { return claimtest.Fault{Hold: late} },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{TTL: 30 * sec})
				w.tenant(q, "a1", "a2", "a3")
				l := w.claim(q)
				late := make(chan struct{})
				f := fault(late)
				f.On, f.Skip = claimtest.Other, 1
				injected := host.Inject(f)
				w.ok(l.Complete(w.Context()))
				l = w.claimWaiting(q)
				w.want(l.ID(), "a2")
				w.want(len(w.tryClaim(q, 5)), 0)
				w.ok(l.Complete(w.Context()))
				w.want(w.claimWaiting(q).ID(), "a3")
				close(late)
				time.Sleep(sec)
				w.want(len(w.tryClaim(q, 5)), 0)
				w.want(len(w.under("lane/")), 1)
				w.want(injected.Hits(), 1)
			})
		})
	}
}

// Sixteen workers of two processes handle the items of ten tenants, one of each at a time and in order, also if
// attempts fail.
func TestManyTenants(t *testing.T) {
	const tenants, each = 10, 40
	virtually(t, func(w *world) {
		cfg := queue.Config{Backoff: func(int) time.Duration { return 50 * time.Millisecond }}
		a, b := w.queue(cfg), w.queue(cfg)
		var items []queue.Item
		for i := range tenants * each {
			id := fmt.Sprintf("%d-%03d", i%tenants, i/tenants)
			items = append(items, queue.NewItem(nil, queue.ID(id), queue.PartitionKey(fmt.Sprint(i%tenants))))
		}
		_, err := a.EnqueueAll(w.Context(), items)
		w.ok(err)
		var mu sync.Mutex
		busy, done, left := map[string]string{}, map[string]int{}, tenants*each
		ctx, stop := context.WithCancel(w.Context())
		defer stop()
		handle := func(_ context.Context, d *queue.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			key := d.PartitionKey()
			if other := busy[key]; other != "" {
				t.Errorf("%s is handled beside %s", d.ID(), other)
			}
			if want := fmt.Sprintf("%s-%03d", key, done[key]); d.ID() != want {
				t.Errorf("%s is handled before %s", d.ID(), want)
			}
			busy[key] = d.ID()
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			delete(busy, key)
			if d.Attempt() == 1 && done[key]%7 == 3 {
				return errors.New("once")
			}
			if done[key]++; left == 1 {
				stop()
			}
			left--
			return nil
		}
		var wg sync.WaitGroup
		for _, q := range []*queue.Queue{a, b} {
			wg.Go(func() { w.ok(q.Work(ctx, queue.WorkerConfig{Concurrency: 8, Handler: handle})) })
		}
		wg.Wait()
		w.want(left, 0)
	})
}

// Thousands of items of one tenant hide none of another, and cost a worker nothing while they wait.
func TestBusyTenantHidesNoOther(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: time.Minute})
		tr := trafficOf(host)
		items := make([]queue.Item, 5000)
		for i := range items {
			items[i] = queue.NewItem(nil, queue.PartitionKey("a"))
		}
		_, err := q.EnqueueAll(w.Context(), items)
		w.ok(err)
		if n, by := tr.reset(); n > 120 { // of which 80 enqueue
			t.Errorf("%d requests enqueued them: %s", n, by)
		}
		l := w.claimWaiting(q)
		w.tenant(q, "b1")
		begin := time.Now()
		w.want(w.claimWaiting(q).ID(), "b1")
		if took := time.Since(begin); took > sec {
			t.Errorf("the other tenant waited %v", took)
		}
		tr.reset()
		ctx, cancel := context.WithTimeout(w.Context(), 10*time.Minute)
		defer cancel()
		_, err = q.Claim(ctx, 1)
		w.wantErr(err, context.DeadlineExceeded)
		if n, by := tr.reset(); n > 3000 {
			t.Errorf("%d requests within ten minutes: %s", n, by)
		}
		w.ok(l.Complete(w.Context()))
		w.want(w.claimWaiting(q).ID(), items[1].ID())
	})
}

// A lane that no item has is freed, and an item that is healed keeps the one that it has.
func TestHealOfLanes(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.tenant(q, "a1", "a2", "a3")
		w.claim(q)
		w.deleteKeys("taken/")
		w.want(w.claimWaiting(q).ID(), "a1")
		w.deleteKeys("content/a1", "taken/")
		w.want(w.claimWaiting(q).ID(), "a2")
		w.want(len(w.under("lane/")), 1)
	})
}

// A bad key or limit is refused before any request, and all processes agree on the limit.
func TestPartitionKeyLimits(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		for _, key := range []string{strings.Repeat("x", 201), "a\nb", "\xff"} {
			_, err := q.Enqueue(w.Context(), queue.NewItem(nil, queue.PartitionKey(key)))
			w.wantErr(err, etcdclaims.ErrInvalidKey)
		}
		w.enqueue(q, "a", queue.PartitionKey(strings.Repeat("x", 200)))
		for _, n := range []int{-1, 1001} {
			if _, err := queue.New(claimtest.NewClient(w.T, w.server, etcdclaims.Config{}), queue.Config{Name: "r", KeyLimit: n}); err == nil {
				t.Errorf("a limit of %d", n)
			}
		}
		_, err := w.queue(queue.Config{KeyLimit: 2}).TryClaim(w.Context(), 1)
		w.wantErr(err, queue.ErrConfig)
		_, err = w.queue(queue.Config{KeyLimit: 1}).TryClaim(w.Context(), 1)
		w.ok(err)
	})
}

// A lower limit is refused while items have lanes of the higher one.
func TestReconfigureLowerKeyLimit(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{KeyLimit: 3})
		w.tenant(q, "a1", "a2", "a3", "a4")
		time.Sleep(sec)
		w.ok(q.Close(w.Context()))
		lower := w.queue(queue.Config{KeyLimit: 1})
		w.wantErr(lower.Reconfigure(w.Context()), queue.ErrInUse)
		higher := w.queue(queue.Config{KeyLimit: 4})
		w.ok(higher.Reconfigure(w.Context()))
		for range 4 {
			w.ok(w.claimWaiting(higher).Complete(w.Context()))
		}
		w.ok(higher.Close(w.Context()))
		w.ok(lower.Reconfigure(w.Context()))
	})
}

// Of a key whose items lose their contents by hand, no more are taken at once than there are items without a content.
func TestContentLostOfATurn(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.tenant(q, "a1", "a2", "a3", "a4")
		lost := w.claim(q)
		w.deleteKeys("content/a1")
		w.want(w.claimWaiting(q).ID(), "a2") // the lane of a1 was freed
		w.ok(lost.Complete(w.Context()))
		time.Sleep(time.Minute)
		w.want(len(w.tryClaim(q, 5)), 0)
	})
}
