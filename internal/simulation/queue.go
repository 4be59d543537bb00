package simulation

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The queue of a run: every twelfth seed has one, since it makes a run four times as
// long. Its processes are those of the first slots.
const (
	queueEvery    = 12
	queueName     = "q"
	queueSlots    = 3
	queueDone     = "/queue-done/"    // <item>: which call completed it
	queueOutbox   = "/queue-outbox/"  // <item>: written with it
	queueRoot     = prefix + "queue/" // and the digest of the name
	queueSessions = prefix + "own/queue/" + queueName + "/session/"
	queueTokens   = "queue/" + queueName + "/"
	queueKeeper   = queueTokens + "keeper"
)

// queueing is the queue of a run, and what was asked of it and answered.
type queueing struct {
	w        *world
	max      int  // taken at the same time; 0: no limit
	room     int  // items that may wait; 0: no limit
	keyLimit int  // items of one partition key under way; 0: items have no key
	backlogs bool // enqueued now and then, so that workers read ahead

	aging time.Duration // in which an item rises by one priority; 0: it does not

	mu      sync.Mutex
	stocked time.Time // when the last backlog was
	ids     int       // made so far
	calls   []*queueCall
	leases  map[leaseName]*queueLease
	waits   []queueWait
	results []queueResult
	ahead   time.Duration // of the true time, of a clock, at most
	behind  time.Duration // the same, negative
}

// vested reports whether an item may be visible by some clock of the run at a time: each
// process goes by its own.
func (qs *queueing) vested(vesting, at time.Time) bool {
	return !vesting.After(at.Add(qs.ahead - qs.behind))
}

// leaseName identifies the lease of an item.
type leaseName struct {
	id    string
	fence int64
}

// queueCall is one call of a process.
type queueCall struct {
	n        int
	p        *process
	verb     string
	id       string
	fence    int64 // of the lease; 0: the call is not of a lease
	priority int
	max      int    // attempts of an enqueued item
	key      string // partition key of an enqueued item
	outcome  string // done, refused, unknown
	why      error
	began    time.Time
	ended    time.Time // when it was last answered
	answered bool
	dead     bool // a failure that was answered so
	last     bool // a failure that is permanent
	unmarked bool // a completion that writes no mark beside
	debounce bool // an enqueue that replaces the payload of an item that has not vested
	applied  int  // how often it is in etcd
	tries    int  // how often it was called again
}

// queueLease is an item that a process was told that it has.
type queueLease struct {
	p       *process
	id      string
	fence   int64
	attempt int
	began   time.Time // the claiming call
	strict  bool      // nobody else claims
	given   bool      // another process has its handle
	seen    bool      // in etcd
}

// queueWait is a call that waited for an item.
type queueWait struct {
	p        *process
	from, to time.Time
}

// queueResult is the result of an item as a process was told it: which call has completed the item.
type queueResult struct {
	p    *process
	id   string
	call int
}

// newQueueing returns the queue of the run, or nil. It draws nothing, so that runs
// without a queue are what they were.
func newQueueing(w *world) *queueing {
	if w.plan.Seed%queueEvery != 0 && !w.plan.Queue {
		return nil
	}
	rng := rand.New(rand.NewPCG(w.plan.Seed, 1))
	qs := &queueing{w: w, max: []int{0, 2, 5}[rng.IntN(3)], room: []int{0, 0, 12}[rng.IntN(3)], leases: map[leaseName]*queueLease{}}
	if qs.backlogs = rng.IntN(3) == 0; qs.backlogs {
		qs.max, qs.room = 0, 0 // with limits nobody reads ahead
	} else {
		qs.keyLimit = []int{0, 1, 1, 2}[rng.IntN(4)]
	}
	qs.aging = []time.Duration{0, time.Second}[rng.IntN(2)]
	return qs
}

// begin records a call.
func (qs *queueing) begin(p *process, verb, id string, fence int64) *queueCall {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	c := &queueCall{n: len(qs.calls), p: p, verb: verb, id: id, fence: fence, outcome: "unknown", began: time.Now()}
	qs.calls = append(qs.calls, c)
	return c
}

// returned records what a call was answered. Its process may call again with the
// same record as long as nothing is known.
func (qs *queueing) returned(c *queueCall, err error) {
	c.p.class("queue "+c.verb, err)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if c.p.dead.Load() {
		return
	}
	asked := c.answered // before, and was told that it is unknown: that may have done it
	c.answered, c.ended, c.why = true, time.Now(), err
	switch {
	case err == nil:
		c.outcome = "done"
	case !asked && !errors.Is(err, etcdclaims.ErrUnknown):
		c.outcome = "refused"
	}
	qs.w.count("queue " + c.verb + " " + c.outcome)
}

// newID returns an id, which may be one of before.
func (qs *queueing) newID(rng *rand.Rand) string {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.ids == 0 || rng.IntN(5) > 0 {
		qs.ids++
		return fmt.Sprintf("i%d", qs.ids-1)
	}
	return fmt.Sprintf("i%d", max(0, qs.ids-1-rng.IntN(6)))
}

// anID returns an id that was used.
func (qs *queueing) anID(rng *rand.Rand) string {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return fmt.Sprintf("i%d", max(0, qs.ids-1-rng.IntN(10)))
}

// openQueue gives the process access to the queue, and lets it work.
func (p *process) openQueue() {
	qs := p.w.queue
	q, err := queue.New(p.client, queue.Config{
		Name: queueName, MaxTaken: qs.max, MaxWaiting: qs.room, KeyLimit: qs.keyLimit, Aging: qs.aging, TTL: p.ttl,
		Backoff: func(attempt int) time.Duration { return time.Duration(attempt) * 400 * time.Millisecond },
	})
	if err != nil {
		p.w.Fatalf("simulation: seed %d: opening a queue: %v", p.w.plan.Seed, err)
	}
	p.queue = q
	p.wg.Go(func() { p.work(p.random(200), producing, 5*time.Second) })
	rng := p.random(201)
	for range 1 + rng.IntN(2) {
		its := split(rng)
		p.wg.Go(func() { p.consume(its) })
	}
}

// closeQueue ends the process's access to the queue, and with it what goes on in the
// background: for a process that is dead, or whose client is closed, without effect
// in etcd.
func (p *process) closeQueue(within time.Duration) {
	if p.queue != nil {
		_ = soon(within, p.queue.Close)
	}
}

// producing is to enqueue, and to intervene now and then.
var producing = []task{
	{10, (*process).enqueue},
	{2, (*process).enqueueSome},
	{2, (*process).outbox},
	{5, (*process).intervene},
	{1, (*process).watchQueue},
}

// item makes an item, which says by its payload which call enqueued it.
func (c *queueCall) item(rng *rand.Rand, more ...queue.ItemOption) queue.Item {
	c.priority, c.max = rng.IntN(4), 1+rng.IntN(4)
	opts := []queue.ItemOption{queue.Priority(c.priority), queue.MaxAttempts(c.max)}
	if c.id != "" {
		opts = append(opts, queue.ID(c.id))
	}
	if rng.IntN(3) == 0 {
		opts = append(opts, queue.Delay(between(rng, 0, 4*time.Second)))
	}
	if n := rng.IntN(9); c.p.w.queue.keyLimit > 0 {
		if c.id != "" { // one id has one key: another is an error of Debounce
			n = int(crc32.ChecksumIEEE([]byte(c.id)) % 9)
		}
		if n < 6 {
			c.key = fmt.Sprintf("k%d", n%3)
			opts = append(opts, queue.PartitionKey(c.key))
		}
	}
	return queue.NewItem(fmt.Appendf(nil, "%d", c.n), append(opts, more...)...)
}

func (p *process) enqueue(rng *rand.Rand) {
	id := ""
	if rng.IntN(4) > 0 {
		id = p.w.queue.newID(rng)
	}
	c := p.w.queue.begin(p, "enqueue", id, 0)
	settles := queue.Debounce(1500*time.Millisecond, 4*time.Second)
	var more []queue.ItemOption
	if c.debounce = id != "" && c.n%4 == 0; c.debounce {
		more = append(more, settles)
	}
	item := c.item(rng, more...)
	c.id = item.ID()
	call := func(c *queueCall) {
		ctx, cancel := p.within(rng, 5*time.Second)
		defer cancel()
		added, err := p.queue.Enqueue(ctx, item)
		if dead := new(queue.DeadLetterError); errors.As(err, &dead) {
			err = nil // it was there, and all its attempts have failed since
		}
		if err == nil && !added {
			c.verb = "enqueue again" // it was there
		}
		p.w.queue.returned(c, err)
	}
	call(c)
	if c.debounce && c.outcome == "done" && p.ctx.Err() == nil {
		then := p.w.queue.begin(p, "enqueue", id, 0)
		then.debounce, then.priority, then.max, then.key = true, c.priority, c.max, c.key
		item = queue.NewItem(fmt.Append(nil, then.n), queue.ID(id), queue.Priority(c.priority), queue.MaxAttempts(c.max),
			queue.PartitionKey(c.key), settles)
		call(then)
		return
	}
	if c.outcome == "unknown" && id != "" && rng.IntN(2) == 0 && p.ctx.Err() == nil {
		c.tries++ // it is put again if it was put and cancelled
		again := p.w.queue.begin(p, "enqueue again", id, 0)
		again.debounce = c.debounce
		call(again)
	}
}

// enqueueSome enqueues several items, or a backlog if one is due.
func (p *process) enqueueSome(rng *rand.Rand) {
	n, most := 2+rng.IntN(5), 5*time.Second
	if p.w.queue.stock() {
		n, most = backlog+rng.IntN(backlog), 20*time.Second
	}
	ctx, cancel := p.within(rng, most)
	defer cancel()
	_ = p.enqueueMany(ctx, rng, n)
}

// outbox enqueues with another write, under a claim.
func (p *process) outbox(rng *rand.Rand) {
	cl, _ := p.acquire(rng, p.key(rng), false)
	if cl == nil {
		return
	}
	c, ops := p.enqueueOps(rng, p.w.queue.newID(rng))
	ctx, cancel := p.within(rng, 5*time.Second)
	defer cancel()
	_, err := cl.Txn(ctx).Then(ops...).Commit()
	p.w.queue.returned(c, err)
	p.release(rng, cl)
}

// enqueueOps returns the operations by which a transaction enqueues, with a write beside that.
func (p *process) enqueueOps(rng *rand.Rand, id string) (*queueCall, []clientv3.Op) {
	c := p.w.queue.begin(p, "enqueue again", id, 0)
	op, err := p.queue.Op(c.item(rng))
	p.w.faultIf(err != nil, "%s: making an operation that enqueues: %v", p.name, err)
	return c, []clientv3.Op{op, clientv3.OpPut(queueOutbox+id, fmt.Sprint(c.n))}
}

// intervene does what a person might.
func (p *process) intervene(rng *rand.Rand) {
	call := func(verb, id string, call func(ctx context.Context, id string) error) {
		ctx, cancel := p.within(rng, 5*time.Second)
		defer cancel()
		c := p.w.queue.begin(p, verb, id, 0)
		p.w.queue.returned(c, call(ctx, id))
	}
	switch rng.IntN(6) {
	case 0:
		call("cancel", p.w.queue.anID(rng), func(ctx context.Context, id string) error { return p.queue.Cancel(ctx, id) })
	case 1:
		call("cancel any", p.w.queue.anID(rng), func(ctx context.Context, id string) error {
			return p.queue.Cancel(ctx, id, queue.AlsoTaken("on purpose"))
		})
	case 2:
		call("set priority", p.w.queue.anID(rng), func(ctx context.Context, id string) error { return p.queue.SetPriority(ctx, id, rng.IntN(4)) })
	case 3:
		call("redrive", p.w.queue.anID(rng), p.queue.Redrive)
	case 4:
		if p.slot > 0 {
			return
		}
		lasts := between(rng, time.Millisecond, 4*time.Second)
		if rng.IntN(2) == 0 {
			call("pause", "", func(ctx context.Context, _ string) error {
				return p.queue.Pause(ctx, "for some time", queue.For(lasts))
			})
			return // it ends by itself
		}
		call("pause", "", func(ctx context.Context, _ string) error { return p.queue.Pause(ctx, "on purpose") })
		p.pause(lasts)
		fallthrough
	default:
		call("resume", "", func(ctx context.Context, _ string) error { return p.queue.Resume(ctx) })
	}
}

// watchQueue reads, which must not disturb.
func (p *process) watchQueue(rng *rand.Rand) {
	ctx, cancel := p.within(rng, 5*time.Second)
	defer cancel()
	switch rng.IntN(3) {
	case 0:
		_, err := p.queue.Stats(ctx)
		p.class("queue stats", err)
	case 1:
		id := p.w.queue.anID(rng)
		_, err := p.queue.Look(ctx, id)
		p.class("queue look", err)
		p.awaitResult(ctx, id)
	default:
		for _, err := range p.queue.Waiting(ctx) {
			p.class("queue list", err)
		}
	}
}

// awaitResult waits for an item, and records its result.
func (p *process) awaitResult(ctx context.Context, id string) {
	info, err := p.queue.Wait(ctx, id)
	p.class("queue wait", err)
	if err != nil || p.dead.Load() || len(info.Result) == 0 {
		return
	}
	n, err := strconv.Atoi(string(info.Result))
	p.w.faultIf(err != nil, "%s was told that the result of %s is %q", p.name, id, info.Result)
	qs := p.w.queue
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.results = append(qs.results, queueResult{p, id, n})
}
