package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/steps"
)

// traffic counts the requests of a machine by kind. Each takes 2 ms.
type traffic struct {
	mu     sync.Mutex
	counts map[claimtest.Kind]int
}

func trafficOf(host *claimtest.Host) *traffic {
	tr := &traffic{counts: map[claimtest.Kind]int{}}
	for _, kind := range []claimtest.Kind{
		claimtest.Other, claimtest.Verify, claimtest.Range, steps.Take, steps.Resolve, claimtest.Grant,
		steps.Sentinel, steps.Free, steps.Enqueue, steps.Advance, claimtest.KeepAlive,
	} {
		host.Inject(claimtest.Fault{
			On: kind, Times: -1, DelayRequest: time.Millisecond, DelayReply: time.Millisecond,
			Saw: func(any) {
				tr.mu.Lock()
				defer tr.mu.Unlock()
				tr.counts[kind]++
			},
		})
	}
	return tr
}

// reset returns what was counted, and counts anew.
func (tr *traffic) reset() (sum int, by string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, n := range tr.counts {
		sum += n
	}
	by = fmt.Sprint(tr.counts)
	tr.counts = map[claimtest.Kind]int{}
	return sum, by
}

// A worker asks etcd for little while there is nothing to do, while the queue is paused or
// full although items wait, and while etcd is away.
func TestNoBusyLoop(t *testing.T) {
	lasting := 10 * time.Minute
	if racing {
		lasting = 2 * time.Minute
	}
	for name, situation := range map[string]struct {
		cfg   queue.Config
		begin func(w *world, p *queue.Queue, host *claimtest.Host)
		most  int // requests in a minute; a loop that waits for replies alone sends 30,000
	}{
		"idle":      {most: 300, begin: func(*world, *queue.Queue, *claimtest.Host) {}},
		"etcd away": {most: 300, begin: func(_ *world, _ *queue.Queue, host *claimtest.Host) { host.Cut() }},
		"etcd refuses connections": {most: 300, begin: func(_ *world, _ *queue.Queue, host *claimtest.Host) {
			host.Kill()
		}},
		"paused": {most: 300, begin: func(w *world, p *queue.Queue, _ *claimtest.Host) {
			w.ok(p.Pause(w.Context(), "maintenance"))
			for i := range 100 {
				w.enqueue(p, fmt.Sprint(i))
			}
		}},
		"all slots taken": {most: 300, cfg: queue.Config{MaxTaken: 1}, begin: func(w *world, p *queue.Queue, _ *claimtest.Host) {
			for i := range 100 {
				w.enqueue(p, fmt.Sprint(i))
			}
			w.claim(p)
		}},
		"all items later": {most: 300, begin: func(w *world, p *queue.Queue, _ *claimtest.Host) {
			for i := range 100 {
				w.enqueue(p, fmt.Sprint(i), queue.Delay(time.Hour))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				q, host := w.process(situation.cfg)
				p := w.queue(situation.cfg)
				tr := trafficOf(host)
				handled := func(_ context.Context, l *queue.Delivery) error {
					if name != "all slots taken" { // it has an item if it is faster than the other
						t.Errorf("item %s was handled", l.ID())
					}
					<-l.Done()
					return nil
				}
				if name == "all slots taken" {
					situation.begin(w, p, host)
				}
				stop := w.works(q, queue.WorkerConfig{Concurrency: 4, Handler: handled})
				time.Sleep(10 * sec) // it waits, and keeps house
				if name != "all slots taken" {
					situation.begin(w, p, host)
				}
				time.Sleep(sec)
				tr.reset()
				time.Sleep(lasting)
				n, by := tr.reset()
				t.Logf("%d requests in %v: %s", n, lasting, by)
				if most := situation.most * int(lasting/time.Minute); n > most {
					t.Errorf("%d requests in %v, want at most %d: %s", n, lasting, most, by)
				}
				if n == 0 && name != "etcd refuses connections" {
					t.Error("no request was counted")
				}
				host.Heal()
				stop()
			})
		})
	}
}

// Items that vest later than others that wait cause no reads when they are enqueued. One
// that vests earlier is moved in time.
func TestDelayedItemsCauseNoReads(t *testing.T) {
	virtually(t, func(w *world) {
		p := w.queue(queue.Config{})
		q, host := w.process(queue.Config{})
		w.want(len(w.tryClaim(q, 1)), 0) // keeps house from now on
		w.enqueue(p, "first", queue.Delay(time.Hour))
		time.Sleep(sec)
		before := len(host.Sent(claimtest.Verify))
		if before == 0 {
			t.Fatal("none of the keeper's reads was counted")
		}
		const n = 100
		for i := range n {
			w.enqueue(p, fmt.Sprint(i), queue.Delay(1000*time.Hour))
			time.Sleep(10 * time.Millisecond)
		}
		if got := len(host.Sent(claimtest.Verify)) - before; got > n/10 {
			t.Errorf("%d reads for %d items", got, n)
		}
		w.enqueue(p, "soon", queue.Delay(100*time.Millisecond))
		time.Sleep(200 * time.Millisecond)
		w.want(w.look(p, "soon").Where, queue.Ready)
	})
}
