package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ranges are those below a part that a process reads.
type ranges struct {
	mu  sync.Mutex
	all []read
}

type read struct {
	from, end string
	counts    bool // and returns no keys
}

// rangesOf notes them, and has each take so long.
func rangesOf(host *claimtest.Host, part string, delay time.Duration) *ranges {
	r := &ranges{}
	saw := func(req any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		var ops []*pb.RequestOp
		switch req := req.(type) {
		case *pb.TxnRequest:
			ops = req.Success
		case *pb.RangeRequest:
			ops = []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: req}}}
		}
		for _, op := range ops {
			if g := op.GetRequestRange(); g != nil && strings.Contains(string(g.Key), part) && len(g.RangeEnd) > 0 {
				r.all = append(r.all, read{string(g.Key), string(g.RangeEnd), g.CountOnly})
			}
		}
	}
	host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, Saw: saw, DelayReply: delay})
	host.Inject(claimtest.Fault{On: claimtest.Range, Times: -1, Saw: saw, DelayReply: delay})
	return r
}

// take returns the ranges since the last call.
func (r *ranges) take() (all []read) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, r.all = r.all, nil
	return all
}

// whole reports whether a range is that of the prefix.
func whole(prefix string) func(read) bool {
	return func(r read) bool {
		return strings.HasSuffix(r.from, prefix) && strings.HasSuffix(r.end, clientv3.GetPrefixRangeEnd(prefix))
	}
}

// awaitWhole waits until the process reads the whole range.
func (w *world) awaitWhole(r *ranges, prefix string) {
	w.Helper()
	r.take()
	for range 1200 {
		if slices.ContainsFunc(r.take(), whole(prefix)) {
			time.Sleep(time.Millisecond) // it is answered
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.Fatalf("no read begins at %s", prefix)
}

// next returns the channel of the next item that is claimed.
func (w *world) next(q *queue.Queue) <-chan *queue.Delivery {
	got := make(chan *queue.Delivery, 1)
	go func() {
		b, err := q.Claim(w.Context(), 1)
		if err == nil {
			got <- b.Deliveries[0]
		}
	}()
	return got
}

// wantWithin wants the item to be claimed within d.
func (w *world) wantWithin(got <-chan *queue.Delivery, d time.Duration, id string) {
	w.Helper()
	select {
	case l := <-got:
		w.want(l.ID(), id)
	case <-time.After(d):
		w.Fatalf("%s not claimed within %v", id, d)
	}
}

// For etcd a deleted key costs a read as much as any until it compacts. So those who wait for items
// read behind the items that are completed, and no further than they need.
func TestReadsVisitFewKeys(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		const n, batch = 2400, 4
		p := w.queue(queue.Config{})
		q, host := w.process(queue.Config{})
		items := make([]queue.Item, n)
		for i := range items {
			items[i] = queue.NewItem(nil, queue.ID(fmt.Sprint(i)))
		}
		_, err := p.EnqueueAll(w.Context(), items)
		w.ok(err)
		keys := w.under("/index/ready/")
		r := rangesOf(host, "/index/ready/", 0)
		completed, waiting, deep, all := 0, 0, 0, 0
		for i := range n / batch {
			b, err := q.Claim(w.Context(), batch)
			w.ok(err)
			w.want(len(b.Deliveries), batch)
			w.ok(b.CompleteAll(w.Context()))
			for _, one := range r.take() {
				done, left := 0, 0
				for k, key := range keys {
					switch {
					case key < one.from || key >= one.end:
					case k < i*batch:
						done++
					default:
						left++
					}
				}
				completed, waiting = max(completed, done), max(waiting, left)
				if all++; left > 1200 {
					deep++
				}
			}
		}
		t.Logf("%d reads of up to %d completed items, %d of them of more than 1200 that wait", all, completed, deep)
		if completed > 200 {
			t.Errorf("a read visited %d completed items", completed)
		}
		if all < 20 || deep > 10 {
			t.Errorf("%d of %d reads visited more than 1200 items that wait, %d at most", deep, all, waiting)
		}
	})
}

// What comes to be before the place where reads begin is claimed at once, however it comes there.
func TestItemBeforeWhereReadsBegin(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    queue.Config
		before func(w *world, p *queue.Queue) *queue.Delivery // of the item, if it is not new
		then   func(w *world, p *queue.Queue, l *queue.Delivery)
	}{
		"enqueued":   {then: func(w *world, p *queue.Queue, _ *queue.Delivery) { w.enqueue(p, "a", queue.Priority(1)) }},
		"given back": {before: taken, then: func(w *world, _ *queue.Queue, l *queue.Delivery) { w.ok(l.Release(w.Context())) }},
		"failed":     {before: taken, then: func(w *world, _ *queue.Queue, l *queue.Delivery) { failAtOnce(w, l) }},
		"redriven":   {before: dead, then: func(w *world, p *queue.Queue, _ *queue.Delivery) { w.ok(p.Redrive(w.Context(), "a")) }},
		"vested": {then: func(w *world, p *queue.Queue, _ *queue.Delivery) {
			w.enqueue(p, "a", queue.Delay(sec/2))
			time.Sleep(sec)
		}},
		"left behind": {before: taken, then: func(w *world, p *queue.Queue, _ *queue.Delivery) { w.ok(p.Close(w.Context())) }},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				p := w.queue(queue.Config{TTL: 30 * sec})
				q, host := w.process(queue.Config{TTL: 30 * sec})
				r := rangesOf(host, "/index/ready/", 0)
				var l *queue.Delivery
				if c.before != nil {
					w.enqueue(p, "a")
					l = c.before(w, p)
				}
				w.enqueue(p, "done")
				w.ok(w.claim(q).Complete(w.Context()))
				got := w.next(q)
				time.Sleep(sec) // its watch has begun
				w.ok(q.Pause(w.Context(), "so that it reads after the resumption"))
				w.awaitWhole(r, "/index/ready/")
				c.then(w, p, l)
				w.want(len(got), 0)
				r.take()
				w.ok(q.Resume(w.Context()))
				w.wantWithin(got, sec/10, "a")
				seen := slices.DeleteFunc(r.take(), func(r read) bool { return r.counts }) // the keeper's
				if slices.ContainsFunc(seen, whole("/index/ready/")) {
					t.Error("the range was read whole")
				}
			})
		})
	}
}

func taken(w *world, p *queue.Queue) *queue.Delivery { return w.claim(p) }

func dead(w *world, p *queue.Queue) *queue.Delivery {
	l := w.claim(p)
	w.ok(l.Discard(w.Context(), "for now"))
	return l
}

func failAtOnce(w *world, l *queue.Delivery) {
	w.Helper()
	_, err := l.Fail(w.Context(), errors.New("no luck"), queue.Backoff(func(int) time.Duration { return 0 }))
	w.ok(err)
}

// An item that the watch reports while a read is under way that begins behind it is claimed at once.
func TestItemBehindAReadUnderWay(t *testing.T) {
	virtually(t, func(w *world) {
		p := w.queue(queue.Config{TTL: 30 * sec})
		q, host := w.process(queue.Config{TTL: 30 * sec})
		r := rangesOf(host, "/index/ready/", 0)
		w.enqueue(p, "done")
		w.ok(w.claim(q).Complete(w.Context()))
		w.want(len(w.tryClaim(q, 1)), 0) // and has looked for dead workers
		got := w.next(q)
		time.Sleep(sec) // its watch has begun
		w.ok(q.Pause(w.Context(), ""))
		w.awaitWhole(r, "/index/ready/")
		host.RemoveFaults()
		late := host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, DelayRequest: sec})
		w.ok(p.Resume(w.Context()))
		time.Sleep(sec / 2)
		w.enqueue(p, "a", queue.Priority(1))
		w.wantWithin(got, sec, "a")
		if late.Hits() == 0 {
			t.Error("no read was under way")
		}
	})
}

// deaf has the process's watches report nothing while it is set.
func deaf(host *claimtest.Host) *atomic.Bool {
	var on atomic.Bool
	host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, Edit: func(reply any) {
		if r, ok := reply.(*pb.WatchResponse); ok && on.Load() {
			r.Events = nil
		}
	}})
	return &on
}

// What a deaf watch does not report is claimed within 10 s by those who wait, and at once by TryClaim.
func TestItemsThatADeafWatchHides(t *testing.T) {
	virtually(t, func(w *world) {
		p := w.queue(queue.Config{TTL: time.Minute})
		q, host := w.process(queue.Config{TTL: time.Minute})
		r, hidden := rangesOf(host, "/index/ready/", 0), deaf(host)
		w.enqueue(p, "done", queue.Priority(9))
		w.ok(w.claim(q).Complete(w.Context()))
		for i := range 5 {
			got := w.next(q)
			w.awaitWhole(r, "/index/ready/")
			time.Sleep(time.Duration(i) * 2 * sec)
			hidden.Store(true)
			w.enqueue(p, fmt.Sprint("waits", i), queue.Priority(8-i))
			time.Sleep(sec)
			w.want(len(got), 0)
			w.wantWithin(got, 10*sec-time.Duration(i)*2*sec, fmt.Sprint("waits", i))
			hidden.Store(false)
		}
		got := w.next(q)
		w.enqueue(p, "reported")
		w.wantWithin(got, sec, "reported")
		hidden.Store(true)
		w.enqueue(p, "by another", queue.Priority(2))
		w.want(ids(w.tryClaim(q, 1)), "by another")
		w.enqueue(q, "its own", queue.Priority(1))
		w.want(ids(w.tryClaim(q, 1)), "its own")
	})
}

// What comes between two watches, so that neither reports it, is claimed as the second begins.
func TestItemBetweenTwoWatches(t *testing.T) {
	virtually(t, func(w *world) {
		p := w.queue(queue.Config{TTL: time.Minute})
		q, host := w.process(queue.Config{TTL: time.Minute})
		r := rangesOf(host, "/index/ready/", 0)
		var ends atomic.Bool
		host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, Edit: func(reply any) {
			if r, ok := reply.(*pb.WatchResponse); ok && len(r.Events) > 0 && ends.CompareAndSwap(true, false) {
				r.Events, r.Canceled = nil, true
			}
		}})
		w.enqueue(p, "done")
		w.ok(w.claim(q).Complete(w.Context()))
		got := w.next(q)
		w.awaitWhole(r, "/index/ready/")
		time.Sleep(sec)
		ends.Store(true)
		w.enqueue(p, "a", queue.Priority(1))
		w.wantWithin(got, 5*sec, "a")
		if ends.Load() {
			t.Error("no watch has ended")
		}
	})
}

// A value that cannot be read stays in the range that is read, and what comes before and behind is
// claimed at once.
func TestUnreadableWhereReadsBegin(t *testing.T) {
	virtually(t, func(w *world) {
		p := w.queue(queue.Config{TTL: time.Minute})
		q, host := w.process(queue.Config{TTL: time.Minute})
		r := rangesOf(host, "/index/ready/", 0)
		w.enqueue(p, "unreadable", queue.Priority(2))
		key := w.under("/index/ready/")[0]
		_, err := w.server.Admin().Put(w.Context(), key, "no JSON")
		w.ok(err)
		for i := range 200 {
			w.enqueue(p, fmt.Sprint(i), queue.Priority(3))
		}
		for i := range 200 {
			w.wantWithin(w.next(q), sec, fmt.Sprint(i))
		}
		all := r.take()
		w.want(all[len(all)-1].from, key)
		got := w.next(q)
		w.awaitWhole(r, "/index/ready/")
		w.enqueue(p, "before", queue.Priority(1))
		w.wantWithin(got, sec, "before")
		got = w.next(q)
		w.enqueue(p, "behind", queue.Priority(2))
		w.wantWithin(got, sec, "behind")
	})
}

// Reads of whole ranges in the background take a hundredth of the time, however slow etcd is; those
// that find what a deaf watch hides are made each minute.
func TestBackgroundWalksAreFew(t *testing.T) {
	testetcd.SkipRace(t)
	for part, most := range map[string]int{"/index/ready/": 60 + 36, "/index/later/": 2*60 + 36, "/taken/": 2 * 36, "/content/": 36} {
		t.Run(part, func(t *testing.T) {
			virtually(t, func(w *world) {
				q, host := w.process(queue.Config{})
				w.enqueue(q, "later", queue.Delay(24*time.Hour))
				w.next(q)
				time.Sleep(time.Minute)
				r := rangesOf(host, part, sec)
				time.Sleep(time.Minute)
				r.take()
				time.Sleep(time.Hour)
				n := 0
				for _, one := range r.take() {
					if whole(part)(one) {
						n++
					}
				}
				if n == 0 || n > most*11/10 {
					t.Errorf("%d reads of the whole range in an hour, want %d at most", n, most)
				}
			})
		})
	}
}
