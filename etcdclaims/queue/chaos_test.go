package queue_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var (
	seed  = flag.Uint64("seed", 1, "of the first run of TestChaos")
	seeds = flag.Int("seeds", 0, "how many runs of TestChaos (default: 6, with -long 24)")
)

// TestChaos lets processes enqueue and work while requests and replies are lost,
// come late, and processes die. Each item must be completed exactly once, by who was
// told so, and each effect of a completion carried out once. No two workers believe at the
// same time that an item is theirs, and no two leases of an item have one fence.
func TestChaos(t *testing.T) {
	n := *seeds
	switch {
	case n > 0:
	case testetcd.Long():
		n = 24
	case racing:
		n = 2
	default:
		n = 6
	}
	for i := range uint64(n) {
		t.Run(fmt.Sprint(*seed+i), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) { newChaos(w, *seed+i).run() })
		})
	}
}

type chaos struct {
	*world
	rand *rand.Rand
	cfg  queue.Config

	mu        sync.Mutex
	sure      map[string]bool           // enqueued for sure
	maybe     map[string]bool           // perhaps
	completed map[string]map[int64]bool // by which fences, told as such
	unknown   map[string]map[int64]bool // told as unknown
	held      map[string][]holding      // leases by item, in the order in which workers got them
	shared    int                       // items that several leases were of
}

// holding is a lease that a worker got.
type holding struct {
	*queue.Delivery
	name  string // of the worker
	fence int64  // at first
}

func newChaos(w *world, seed uint64) *chaos {
	return &chaos{
		world: w, rand: rand.New(rand.NewPCG(seed, 0)), cfg: queue.Config{MaxTaken: int(seed % 3 * 3), Retention: time.Hour},
		sure: map[string]bool{}, maybe: map[string]bool{}, completed: map[string]map[int64]bool{}, unknown: map[string]map[int64]bool{},
		held: map[string][]holding{},
	}
}

func (c *chaos) n(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rand.IntN(n)
}

func (c *chaos) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() { c.life(ctx, p) })
	}
	q := c.queue(c.cfg)
	for i := range testetcd.Fewer(60, 25) {
		c.put(q, fmt.Sprintf("quiet-%d", i))
		time.Sleep(time.Duration(c.n(2000)) * time.Millisecond)
	}
	cancel()
	wg.Wait()
	time.Sleep(ttl + 2*sec) // what is late has come, what is dead is buried
	c.drain(q)
	c.judge(q)
}

// life is that of one process after the other on one machine.
func (c *chaos) life(ctx context.Context, p int) {
	for n := 0; ctx.Err() == nil; n++ {
		q, host := c.process(c.cfg)
		life, end := context.WithTimeout(ctx, time.Duration(10+c.n(60))*sec)
		var wg sync.WaitGroup
		for worker := range 3 {
			wg.Go(func() { c.work(life, q, fmt.Sprintf("%d/%d/%d", p, n, worker)) })
		}
		wg.Go(func() {
			for i := 0; life.Err() == nil; i++ {
				c.put(q, fmt.Sprintf("%d-%d-%d", p, n, i))
				time.Sleep(time.Duration(c.n(8000)) * time.Millisecond)
			}
		})
		var harmed sync.WaitGroup
		harmed.Go(func() { c.harm(life, host) })
		<-life.Done()
		end()
		harmed.Wait()
		if c.n(2) == 0 {
			host.Kill() // it never comes back
		} else {
			host.RemoveFaults()
			closing, cancel := context.WithTimeout(context.Background(), 10*sec)
			_ = q.Close(closing)
			cancel()
		}
		wg.Wait()
	}
}

// harm injects faults into the requests of a machine.
func (c *chaos) harm(ctx context.Context, host *claimtest.Host) {
	kinds := []claimtest.Kind{claimtest.Other, claimtest.Other, claimtest.Other, claimtest.Verify, claimtest.KeepAlive, claimtest.Watch, claimtest.Acquire}
	for ctx.Err() == nil {
		time.Sleep(time.Duration(200+c.n(3000)) * time.Millisecond)
		f := claimtest.Fault{On: kinds[c.n(len(kinds))], Skip: c.n(3)}
		switch c.n(4) {
		case 0:
			f.LoseReply = true
		case 1:
			f.LoseRequest = true
		case 2:
			held := make(chan struct{})
			f.Hold = held
			time.AfterFunc(time.Duration(c.n(15000))*time.Millisecond, func() { close(held) })
		default:
			f.DelayReply = time.Duration(c.n(4000)) * time.Millisecond
		}
		if f.On == claimtest.Watch || f.On == claimtest.KeepAlive {
			f = claimtest.Fault{On: f.On, DelayReply: time.Duration(c.n(2000)) * time.Millisecond}
		}
		host.Inject(f)
		if c.n(10) == 0 {
			host.Cut()
			time.Sleep(time.Duration(c.n(20)) * sec)
			host.Heal()
		}
	}
}

func (c *chaos) put(q *queue.Queue, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*sec)
	defer cancel()
	_, err := q.Enqueue(ctx, queue.NewItem([]byte(id), queue.ID(id), queue.Priority(c.n(3)), queue.Delay(time.Duration(c.n(3000))*time.Millisecond), queue.MaxAttempts(1000)))
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.sure[id] = true
	default:
		c.maybe[id] = true
	}
}

func (c *chaos) work(ctx context.Context, q *queue.Queue, name string) {
	for ctx.Err() == nil {
		b, err := q.Claim(ctx, 1+c.n(3))
		if err != nil {
			if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, etcdclaims.ErrClosed) {
				c.Errorf("claim: %v", err)
			}
			continue
		}
		for _, l := range b.Deliveries {
			c.hold(l, name)
		}
		for _, l := range b.Deliveries {
			c.handle(q, l)
			for l.Err() == nil && l.Release(context.Background()) != nil {
				time.Sleep(sec)
			}
		}
	}
}

// hold notes that a worker got a lease.
func (c *chaos) hold(l *queue.Delivery, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if string(l.Payload()) != l.ID() {
		c.Errorf("item %s has payload %s", l.ID(), l.Payload())
	}
	if c.held[l.ID()] = append(c.held[l.ID()], holding{l, name, l.Fence()}); len(c.held[l.ID()]) == 2 {
		c.shared++
	}
	c.alone(l)
}

// alone checks that nobody else believes to have the item of a lease while its worker
// does. The caller holds the mutex.
func (c *chaos) alone(l *queue.Delivery) {
	var believers []string
	for _, h := range c.held[l.ID()] {
		if h.Delivery != l && h.Check() == nil {
			believers = append(believers, fmt.Sprintf("%s by fence %d", h.name, h.Fence()))
		}
	}
	// A lease that is held now was held when the others were asked.
	if len(believers) > 0 && l.Check() == nil {
		c.Errorf("item %s is held by fence %d and believed to be held by %v", l.ID(), l.Fence(), believers)
	}
}

func (c *chaos) handle(q *queue.Queue, l *queue.Delivery) {
	time.Sleep(time.Duration(c.n(1500)) * time.Millisecond)
	c.mu.Lock()
	c.alone(l)
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+c.n(20))*sec)
	defer cancel()
	switch c.n(8) {
	case 0:
		_, _ = l.Fail(ctx, errors.New("bad luck"), queue.Backoff(etcdclaims.ExponentialBackoff(sec, 5*sec)))
	case 1:
		_ = l.Release(ctx)
	case 2:
		_, _ = l.Snooze(ctx, sec)
	case 3:
		_, _ = l.Heartbeat(ctx, 20*sec)
		fallthrough
	default:
		fence := l.Fence()
		// The effect says how often it was carried out, by its version.
		err := l.Complete(ctx, clientv3.OpPut("/effect/"+l.ID(), fmt.Sprint(fence)))
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case err == nil:
			add(c.completed, l.ID(), fence)
		case errors.Is(err, etcdclaims.ErrUnknown):
			add(c.unknown, l.ID(), fence)
		case errors.Is(err, etcdclaims.ErrLost), errors.Is(err, etcdclaims.ErrClosed), ctx.Err() != nil:
		default:
			c.Errorf("complete %s: %v", l.ID(), err)
		}
	}
}

func add(m map[string]map[int64]bool, id string, fence int64) {
	if m[id] == nil {
		m[id] = map[int64]bool{}
	}
	m[id][fence] = true
}

// drain completes all that is left.
func (c *chaos) drain(q *queue.Queue) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		b, err := q.Claim(ctx, 10)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if err != nil {
			c.Fatalf("draining: %v", err)
		}
		for _, l := range b.Deliveries {
			c.hold(l, "drain")
			if err := l.Complete(context.Background(), clientv3.OpPut("/effect/"+l.ID(), fmt.Sprint(l.Fence()))); err != nil {
				c.Errorf("draining %s: %v", l.ID(), err)
				continue
			}
			c.mu.Lock()
			add(c.completed, l.ID(), l.Fence())
			c.mu.Unlock()
		}
	}
}

// judge compares what processes were told with what is in etcd.
func (c *chaos) judge(q *queue.Queue) {
	resp, err := c.server.Admin().Get(context.Background(), "/effect/", clientv3.WithPrefix())
	if err != nil {
		c.Fatal(err)
	}
	effects := map[string]string{}
	for _, kv := range resp.Kvs {
		id := string(kv.Key[len("/effect/"):])
		effects[id] = string(kv.Value)
		if kv.Version != 1 {
			c.Errorf("item %s was completed %d times", id, kv.Version)
		}
	}
	for id := range c.sure {
		if effects[id] == "" {
			c.Errorf("item %s is lost: %+v", id, c.look(q, id))
		}
	}
	for id, fences := range c.completed {
		if len(fences) > 1 {
			c.Errorf("completion of %s was told to %v", id, fences)
		}
		for fence := range fences {
			if effects[id] != fmt.Sprint(fence) {
				c.Errorf("completion of %s was told to fence %d, etcd has %q", id, fence, effects[id])
			}
		}
	}
	for id, by := range effects {
		var fence int64
		_, _ = fmt.Sscan(by, &fence)
		if !c.completed[id][fence] && !c.unknown[id][fence] {
			c.Errorf("completion of %s by fence %d was told to nobody", id, fence)
		}
		if !c.sure[id] && !c.maybe[id] {
			c.Errorf("item %s was not enqueued", id)
		}
	}
	for id, all := range c.held {
		fences := map[int64]string{}
		for _, h := range all {
			if other := fences[h.fence]; other != "" {
				c.Errorf("item %s was given to %s and %s by fence %d", id, other, h.name, h.fence)
			}
			fences[h.fence] = h.name
		}
	}
	st, err := q.Stats(context.Background())
	if err != nil || st.Ready+st.Later+st.Taken+st.Dead > 0 || st.Skipped > 0 {
		c.Errorf("left over: %+v, %v", st, err)
	}
	for _, part := range []string{"/place/", "/slot/", "/taken/", "/index/ready", "/index/later"} {
		if left := c.under(part); len(left) > 0 {
			c.Errorf("left over: %v", left)
		}
	}
	if left := c.under("/worker/"); len(left) > 1 {
		own, _ := c.server.Admin().Get(context.Background(), "/etcdclaims/own/", clientv3.WithPrefix())
		workers, _ := c.server.Admin().Get(context.Background(), left[0][:strings.LastIndex(left[0], "/")], clientv3.WithPrefix())
		c.Errorf("sessions left over: %v\n%v", workers.Kvs, own.Kvs)
	}
	if c.shared == 0 {
		c.Error("no item was claimed twice: nothing was judged")
	}
	c.Logf("%d items, %d effects, %d items claimed several times", len(c.sure), len(effects), c.shared)
}
