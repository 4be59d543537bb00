package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// crowd is many processes that wait for items, and what they ask of etcd.
type crowd struct {
	sent, won, reads, moves atomic.Int64
	movers                  sync.Map // hosts that move items that have vested

	mu     sync.Mutex
	picked []time.Duration // from the enqueue to the claim
	hosts  []*claimtest.Host
	queues []*queue.Queue
	stops  []func()
}

// crowd starts the processes, each with one caller. A request takes 2 ms.
func (w *world) crowd(n int, cfg queue.Config, work time.Duration) *crowd {
	w.Helper()
	c := &crowd{}
	for i := range n {
		q, host := w.process(cfg)
		host.Inject(claimtest.Fault{
			On: claimtest.Other, Times: -1, DelayRequest: time.Millisecond, DelayReply: time.Millisecond,
			Saw: func(req any) {
				if r, ok := req.(*etcdserverpb.TxnRequest); ok {
					if claims(r) {
						c.sent.Add(1)
					}
					if promotes(r) {
						c.moves.Add(1)
						c.movers.Store(i, true)
					}
				}
			},
			Edit: func(reply any) {
				if r, ok := reply.(*etcdserverpb.TxnResponse); ok && claimed(r) {
					c.won.Add(1)
				}
			},
		})
		host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, Saw: func(req any) {
			if r, ok := req.(*etcdserverpb.TxnRequest); ok && strings.Contains(r.String(), "/index/ready/") {
				c.reads.Add(1)
			}
		}})
		c.hosts, c.queues = append(c.hosts, host), append(c.queues, q)
		c.stops = append(c.stops, w.works(q, queue.WorkerConfig{Concurrency: 1, Handler: func(_ context.Context, l *queue.Delivery) error {
			c.mu.Lock()
			c.picked = append(c.picked, l.Obtained().Sub(l.Vesting()))
			c.mu.Unlock()
			time.Sleep(work)
			return nil
		}}))
	}
	time.Sleep(2 * sec) // all wait, and know of each other
	c.sent.Store(0)
	c.won.Store(0)
	c.reads.Store(0)
	return c
}

func (c *crowd) stop() {
	for _, stop := range c.stops {
		stop()
	}
}

// latencies returns the median and the longest time from vesting to claim.
func (c *crowd) latencies() (n int, median, most time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.picked)
	return len(c.picked), c.picked[len(c.picked)/2], c.picked[len(c.picked)-1]
}

// promotes reports whether a request moves items that have vested.
func promotes(r *etcdserverpb.TxnRequest) bool {
	del, put := false, false
	for _, op := range r.Success {
		if in := op.GetRequestTxn(); in != nil && promotes(in) {
			return true
		}
		del = del || strings.Contains(string(op.GetRequestDeleteRange().GetKey()), "/index/later/")
		put = put || strings.Contains(string(op.GetRequestPut().GetKey()), "/index/ready/")
	}
	return del && put
}

// Where many processes wait, an item that is enqueued causes one claiming request and
// no read, also if the queue has a concurrency limit, and several items go to as many
// processes at once.
func TestOneClaimPerEnqueue(t *testing.T) {
	testetcd.SkipRace(t)
	for _, cfg := range []queue.Config{{TTL: time.Minute}, {TTL: time.Minute, MaxTaken: 20}} {
		for _, burst := range []int{1, 8} {
			if racing && (burst == 1) == (cfg.MaxTaken > 0) {
				continue // the other two have both kinds of queue and both kinds of arrivals
			}
			t.Run(fmt.Sprintf("MaxTaken=%d/burst=%d", cfg.MaxTaken, burst), func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					p := w.queue(cfg)
					c := w.crowd(32, cfg, 10*time.Millisecond)
					for range 64 / burst {
						var items []queue.Item
						for range burst {
							items = append(items, queue.NewItem(nil))
						}
						_, err := p.EnqueueAll(w.Context(), items)
						w.ok(err)
						time.Sleep(100 * time.Millisecond)
					}
					n, median, most := c.latencies()
					t.Logf("%d claiming requests, %d won, %d reads; from enqueue to claim %v, at most %v", c.sent.Load(), c.won.Load(), c.reads.Load(), median, most)
					w.want(n, 64)
					if sent, won := c.sent.Load(), c.won.Load(); sent > won+won/10 {
						t.Errorf("of %d claiming requests %d won", sent, won)
					}
					if r := c.reads.Load(); r > 32 {
						t.Errorf("%d reads", r)
					}
					if median > time.Millisecond || most > 100*time.Millisecond {
						t.Errorf("an item waited for %v, at most %v", median, most)
					}
					c.stop()
				})
			})
		}
	}
}

// A process that is to claim an item and is dead, or busy, delays it by milliseconds.
func TestDeadClaimerDelaysLittle(t *testing.T) {
	virtually(t, func(w *world) {
		cfg := queue.Config{TTL: time.Minute}
		p := w.queue(cfg)
		c := w.crowd(8, cfg, 10*time.Millisecond)
		for i := range 4 {
			c.hosts[i].Cut()
		}
		for range 50 {
			w.enqueue(p, fmt.Sprint(time.Now().UnixNano()))
			time.Sleep(100 * time.Millisecond)
		}
		n, median, most := c.latencies()
		t.Logf("%d items, from enqueue to claim %v, at most %v", n, median, most)
		w.want(n, 50)
		if most > 100*time.Millisecond {
			t.Errorf("an item waited for %v", most)
		}
		for i := range 4 {
			c.hosts[i].Heal()
		}
		c.stop()
	})
}

// A slot that becomes free is claimed at once, by few requests however many wait for it.
func TestFewClaimsPerSlot(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		cfg := queue.Config{TTL: time.Minute, MaxTaken: 2}
		p := w.queue(cfg)
		c := w.crowd(32, cfg, 50*time.Millisecond)
		n := 80
		if testetcd.Long() {
			n = 200
		}
		var items []queue.Item
		for range n {
			items = append(items, queue.NewItem(nil))
		}
		_, err := p.EnqueueAll(w.Context(), items)
		w.ok(err)
		begin := time.Now()
		for c.won.Load() < int64(n) {
			time.Sleep(10 * time.Millisecond)
		}
		took := time.Since(begin)
		t.Logf("%d claiming requests, %d won, %d reads, %v", c.sent.Load(), c.won.Load(), c.reads.Load(), took)
		if sent, won := c.sent.Load(), c.won.Load(); sent > won*5/4 && !racing {
			t.Errorf("of %d claiming requests %d won", sent, won)
		}
		if r := c.reads.Load(); r > 100 { // each process reads three times
			t.Errorf("%d reads", r)
		}
		if took > time.Duration(n)*35*time.Millisecond { // 25 ms for each if no slot were ever free
			t.Errorf("took %v", took)
		}
		c.stop()
	})
}

// One process moves items whose time has come, however many wait, and if it dies the
// others go on.
func TestOneKeeperMovesItems(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		cfg := queue.Config{TTL: 10 * sec}
		p := w.queue(cfg)
		c := w.crowd(8, cfg, 10*time.Millisecond)
		c.moves.Store(0)
		var items []queue.Item
		at := time.Now().Add(time.Minute)
		for i := range 100 {
			items = append(items, queue.NewItem(nil, queue.At(at.Add(time.Duration(i)*100*time.Millisecond))))
		}
		_, err := p.EnqueueAll(w.Context(), items)
		w.ok(err)
		time.Sleep(90 * sec)
		n, median, most := c.latencies()
		movers := 0
		keeper := -1
		c.movers.Range(func(i, _ any) bool { movers, keeper = movers+1, i.(int); return true })
		t.Logf("%d items, %d moves by %d processes, %d claiming requests, %d won; late by %v, at most %v", n, c.moves.Load(), movers, c.sent.Load(), c.won.Load(), median, most)
		w.want(n, 100)
		w.want(movers, 1)
		w.want(c.moves.Load(), int64(100))
		if median > 10*time.Millisecond || most > 100*time.Millisecond {
			t.Errorf("an item was late by %v, at most %v", median, most)
		}
		if sent, won := c.sent.Load(), c.won.Load(); sent > won+won/10 {
			t.Errorf("of %d claiming requests %d won", sent, won)
		}
		c.hosts[keeper].Kill()
		w.enqueue(p, "late", queue.Delay(sec))
		time.Sleep(5 * sec)
		n, _, most = c.latencies()
		w.want(n, 101)
		if most > 3*sec {
			t.Errorf("without a keeper the item was late by %v", most)
		}
		c.hosts[keeper].Heal()
		c.stop()
	})
}

// A worker with a backlog claims most items without a read, in order, and a more urgent
// one that comes meanwhile before the others.
func TestBacklogIsReadAhead(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		p := w.queue(queue.Config{})
		q, host := w.process(queue.Config{})
		var items []queue.Item
		for i := range 300 {
			items = append(items, queue.NewItem(nil, queue.ID(fmt.Sprintf("%03d", i)), queue.Priority(100+i/100)))
		}
		_, err := p.EnqueueAll(w.Context(), items)
		w.ok(err)
		reads := readsOf(host)
		next := func() string {
			b, err := q.Claim(w.Context(), 1)
			w.ok(err)
			w.ok(b.Deliveries[0].Complete(w.Context()))
			synctest.Wait() // requests take no time here: let the watch keep up with them
			return b.Deliveries[0].ID()
		}
		for i := range 300 {
			switch i {
			case 150:
				w.enqueue(p, "urgent", queue.Priority(1))
				w.enqueue(p, "not urgent", queue.Priority(1000))
				time.Sleep(200 * time.Millisecond) // etcd reports it
				w.want(next(), "urgent")
			case 200:
				w.ok(p.Cancel(w.Context(), "200"))
				time.Sleep(200 * time.Millisecond) // etcd reports it
				continue
			}
			w.want(next(), fmt.Sprintf("%03d", i))
		}
		w.want(next(), "not urgent")
		if n := reads.Load(); n == 0 || n > 12 { // six, and the keeper's
			t.Errorf("%d reads", n)
		}
	})
}

// readsOf counts how often a process reads the head of the queue from now on.
func readsOf(host *claimtest.Host) *atomic.Int64 {
	var reads atomic.Int64
	host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, Saw: func(req any) {
		if r, ok := req.(*etcdserverpb.TxnRequest); ok && strings.Contains(r.String(), "/index/ready/") {
			reads.Add(1)
		}
	}})
	return &reads
}

// A full read with more items than claimers share one by one is kept like any other
// backlog.
func TestSmallBacklogIsReadOnce(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		w.enqueue(q, "first")
		w.ok(w.claim(q).Complete(w.Context()))
		time.Sleep(sec) // its watch is there
		reads := readsOf(host)
		var items []queue.Item
		for range 90 { // more than 64, fewer than 30 and the 64 that are read ahead
			items = append(items, queue.NewItem(nil))
		}
		_, err := q.EnqueueAll(w.Context(), items)
		w.ok(err)
		for range 3 {
			b, err := q.Claim(w.Context(), 30)
			w.ok(err)
			w.want(len(b.Deliveries), 30)
		}
		w.want(reads.Load(), int64(1))
	})
}

// While a claimer has no watch it does not believe for long that there is no item.
func TestClaimWithoutWatch(t *testing.T) {
	virtually(t, func(w *world) {
		p := w.queue(queue.Config{TTL: time.Minute})
		q, host := w.process(queue.Config{TTL: time.Minute})
		host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, LoseRequest: true})
		claimed := make(chan error, 1)
		go func() {
			_, err := q.Claim(w.Context(), 1)
			claimed <- err
		}()
		time.Sleep(3 * sec)
		begin := time.Now()
		w.enqueue(p, "a")
		w.ok(<-claimed)
		if took := time.Since(begin); took > 1500*time.Millisecond {
			t.Errorf("claimed after %v", took)
		}
	})
}

// Callers that come together want more than one request can claim: the next one claims the rest.
func TestTryClaimsTogether(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		const callers, each = 8, 30
		var items []queue.Item
		for range callers * each {
			items = append(items, queue.NewItem(nil))
		}
		_, err := q.EnqueueAll(w.Context(), items)
		w.ok(err)
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				if b, err := q.TryClaim(w.Context(), each); err != nil || len(b.Deliveries) == 0 {
					t.Errorf("claimed %d items: %v", len(b.Deliveries), err)
				}
			})
		}
		wg.Wait()
	})
}
