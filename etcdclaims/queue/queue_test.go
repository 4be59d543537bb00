package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestOrder(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "default-1")
		w.enqueue(q, "default-2")
		w.enqueue(q, "urgent", queue.Priority(0))
		w.enqueue(q, "negative", queue.Priority(-5))
		w.enqueue(q, "late", queue.Priority(200))
		w.want(ids(w.tryClaim(q, 3)), "negative urgent default-1")
		w.want(ids(w.tryClaim(q, 10)), "default-2 late")
	})
}

func TestHigherFirst(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{HigherFirst: true})
		w.enqueue(q, "b", queue.Priority(-1))
		w.enqueue(q, "a", queue.Priority(7))
		w.want(ids(w.tryClaim(q, 3)), "a b")
		other := w.queue(queue.Config{})
		_, err := other.Enqueue(w.Context(), queue.NewItem(nil))
		w.wantErr(err, queue.ErrConfig)
	})
}

// Errors name their operation, the queue and the cause, each once.
func TestErrorTexts(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		enqueue := func(q *queue.Queue, item queue.Item) error {
			_, err := q.Enqueue(w.Context(), item)
			return err
		}
		says := func(err, is error, want string) {
			t.Helper()
			w.wantErr(err, is)
			if text := err.Error(); !strings.HasPrefix(text, want) || strings.Contains(text, "etcdclaims: ") {
				t.Errorf("%s, want %s", text, want)
			}
		}
		if err := enqueue(q, queue.Item{}); err == nil || err.Error() != `enqueue: queue "q": the zero Item; make items with NewItem` {
			t.Error(err)
		}
		says(enqueue(q, queue.NewItem(nil, queue.ID(""))), etcdclaims.ErrInvalidKey, `enqueue: queue "q": id "" must be printable UTF-8 of 1 to 512 bytes: invalid key`)
		says(enqueue(q, queue.NewItem(make([]byte, 2<<20), queue.ID("a"))), etcdclaims.ErrTooLarge, `enqueue: queue "q": item "a": payload of 2097152 bytes, the limit is`)

		w.enqueue(q, "a")
		says(enqueue(w.queue(queue.Config{MaxTaken: 3}), queue.NewItem(nil)), queue.ErrConfig,
			`enqueue: queue "q": queue has another configuration: Config.MaxTaken is 3, the queue has 0; Open takes that of the queue, and Reconfigure changes it`)
		l := w.claim(q)
		w.ok(l.Complete(w.Context()))
		says(l.Complete(w.Context()), etcdclaims.ErrReleased, `complete item "a" of queue "q": an earlier complete ended the lease`)
		says(l.Check(), etcdclaims.ErrReleased, "an earlier complete ended the lease")
		w.ok(q.Close(w.Context()))
		says(enqueue(q, queue.NewItem(nil)), etcdclaims.ErrClosed, `enqueue: queue "q": this Queue is closed`)
	})
}

// While etcd does not answer, an error says so: the caller's context has not ended.
func TestErrorWithoutAnswer(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		w.ok(w.Context().Err())
		host.Cut()
		_, enqueued := q.Enqueue(w.Context(), queue.NewItem(nil))
		_, claimed := q.TryClaim(w.Context(), 1)
		_, counted := q.Stats(w.Context())
		for _, err := range []error{enqueued, claimed, counted} {
			w.wantErr(err, context.DeadlineExceeded)
			if !strings.Contains(err.Error(), `queue "q": etcd does not answer: context deadline exceeded`) {
				t.Error(err)
			}
		}
		short, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if _, err := q.Stats(short); err == nil || strings.Contains(err.Error(), "does not answer") {
			t.Errorf("the caller's own time was over: %v", err)
		}
		host.Heal()
	})
}

func TestEmptyAndTaken(t *testing.T) {
	virtually(t, func(w *world) {
		q, p := w.queue(queue.Config{}), w.queue(queue.Config{})
		b, err := q.TryClaim(w.Context(), 5)
		w.ok(err)
		w.want(len(b.Deliveries)+b.Taken, 0)
		w.enqueue(q, "a")
		l := w.claim(p)
		w.want(string(l.Payload()), "payload of a")
		w.want(l.Attempt(), 1)
		b, err = q.TryClaim(w.Context(), 5)
		w.ok(err)
		w.want(len(b.Deliveries), 0)
		w.want(b.Taken, 1)
	})
}

func TestSameIDOnce(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{Retention: time.Minute})
		w.enqueue(q, "a")
		again := func() bool {
			added, err := q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID("a")))
			w.ok(err)
			return added
		}
		w.want(again(), false)
		w.ok(w.claim(q).Complete(w.Context()))
		w.want(again(), false)
		w.want(w.look(q, "a").Where, queue.Completed)
		time.Sleep(2 * time.Minute)
		w.want(again(), true)
	})
}

// A parent that enqueues a child in its Complete, and is run again, has enqueued one.
func TestChildOnce(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "parent", queue.Priority(1))
		child, err := q.Op(queue.NewItem([]byte("c"), queue.ID("child")))
		w.ok(err)
		claim, err := etcdClaims(w).TryAcquire(w.Context(), "outbox")
		w.ok(err)
		_, err = claim.Txn(w.Context()).Then(child, clientv3.OpPut("/effect", "1")).Commit()
		w.ok(err)
		w.ok(w.claim(q).Complete(w.Context(), child))
		w.want(ids(w.tryClaim(q, 5)), "child")
	})
}

func etcdClaims(w *world) *etcdclaims.Client {
	return claimtest.NewClient(w.T, w.server.Host(w.T), etcdclaims.Config{})
}

func TestVesting(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "later", queue.Delay(time.Minute), queue.Priority(0))
		w.enqueue(q, "now")
		b, err := q.TryClaim(w.Context(), 5)
		w.ok(err)
		w.want(ids(b.Deliveries), "now")
		at := w.look(q, "later").Vesting
		w.want(w.look(q, "later").Where, queue.Later)
		b, err = q.TryClaim(w.Context(), 5)
		w.ok(err)
		if !b.Next.Equal(at) {
			t.Errorf("next %v, want %v", b.Next, at)
		}
		time.Sleep(time.Until(at)) // an item that vests exactly now is visible
		w.want(ids(w.tryClaim(q, 5)), "later")
	})
}

func TestClaimWaits(t *testing.T) {
	virtually(t, func(w *world) {
		q, p := w.queue(queue.Config{}), w.queue(queue.Config{})
		begin := time.Now()
		took := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				b, err := q.Claim(context.Background(), 1)
				if err != nil || len(b.Deliveries) != 1 {
					t.Errorf("claim: %v, %v", b, err)
				}
				took <- time.Since(begin)
			}()
		}
		time.Sleep(5 * sec)
		w.enqueue(p, "a")
		w.enqueue(p, "b", queue.Delay(20*sec))
		if d := <-took; d < 5*sec || d > 5*sec+100*time.Millisecond {
			t.Errorf("the first was claimed after %v", d)
		}
		if d := <-took; d < 25*sec || d > 25*sec+100*time.Millisecond {
			t.Errorf("the second was claimed after %v", d)
		}
		ctx, cancel := context.WithTimeout(context.Background(), sec)
		defer cancel()
		_, err := q.Claim(ctx, 1)
		w.wantErr(err, context.DeadlineExceeded)
	})
}

func TestFail(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{MaxAttempts: 3})
		w.enqueue(q, "a")
		w.enqueue(q, "b")
		l := w.claim(q)
		out, err := l.Fail(w.Context(), errors.New("bad luck"), queue.Backoff(etcdclaims.ExponentialBackoff(10*sec, time.Minute)))
		w.ok(err)
		if d := time.Until(out.Until); out.Dead || d < 5*sec || d > 10*sec {
			t.Errorf("failed until %v from now, dead %v", d, out.Dead)
		}
		w.wantErr(l.Complete(w.Context()), etcdclaims.ErrReleased)
		w.want(ids(w.tryClaim(q, 5)), "b")
		info := w.look(q, "a")
		w.want(info.Where, queue.Later)
		w.want(len(info.History), 1)
		w.want(info.History[0].Error, "bad luck")
		w.want(info.History[0].Fence, l.Fence())
		time.Sleep(10 * sec)
		l = w.claim(q)
		w.want(l.Attempt(), 2)
		_, err = l.Fail(w.Context(), etcdclaims.RetryAfter(errors.New("again"), 10*time.Minute))
		w.ok(err)
		time.Sleep(10 * time.Minute)
		out, err = w.claim(q).Fail(w.Context(), errors.New("third"))
		w.ok(err)
		w.want(out.Dead, true)
		info = w.look(q, "a")
		w.want(info.Where, queue.Dead)
		w.want(len(info.History), 3)
		w.want(info.Why, "failed: third")
		w.ok(q.Redrive(w.Context(), "a"))
		l = w.claim(q)
		w.want(l.Attempt(), 1)
		w.want(len(l.History()), 3)
		out, err = l.Fail(w.Context(), etcdclaims.Permanent(errors.New("never")))
		w.ok(err)
		w.want(out.Dead, true)
		n := 0
		for info, err := range q.DeadLetters(w.Context()) {
			w.ok(err)
			w.want(info.ID, "a")
			n++
		}
		w.want(n, 1)
		n, err = q.Purge(w.Context(), time.Now().Add(sec))
		w.ok(err)
		w.want(n, 1)
		_, err = q.Look(w.Context(), "a")
		w.wantErr(err, queue.ErrNotFound)
	})
}

func TestSnoozeReleaseDiscard(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		l := w.claim(q)
		until, err := l.Snooze(w.Context(), time.Minute)
		w.ok(err)
		w.want(len(w.tryClaim(q, 1)), 0)
		time.Sleep(time.Until(until))
		l = w.claim(q)
		w.want(l.Attempt(), 1)
		w.ok(l.Release(w.Context()))
		l2 := w.claim(q)
		w.want(l2.Attempt(), 1)
		if l2.Fence() <= l.Fence() {
			t.Errorf("fence %d after %d", l2.Fence(), l.Fence())
		}
		w.ok(l2.Discard(w.Context(), "no use"))
		w.want(w.look(q, "a").Why, "discarded: no use")
	})
}

// The items of a dead worker are visible again within TTL + 1 s, without anybody's
// doing but that of those who wait.
func TestDeadWorker(t *testing.T) {
	virtually(t, func(w *world) {
		victim, host := w.process(queue.Config{})
		q := w.queue(queue.Config{})
		for _, id := range []string{"a", "b", "c"} {
			w.enqueue(q, id)
		}
		held := w.tryClaim(victim, 3)
		w.want(len(held), 3)
		time.Sleep(3 * sec)
		host.Kill()
		begin := time.Now()
		var got []*queue.Delivery
		for len(got) < 3 {
			b, err := q.Claim(w.Context(), 3)
			w.ok(err)
			got = append(got, b.Deliveries...)
		}
		if d := time.Since(begin); d > ttl+sec {
			t.Errorf("recovered after %v", d)
		}
		for _, l := range got {
			w.want(l.Attempt(), 2)
			w.want(l.History()[0].Ending, "lost")
		}
		// The late worker is refused, never believed.
		host.Heal()
		w.wantErr(held[0].Complete(w.Context()), queue.ErrExpired)
		w.wantErr(held[0].Complete(w.Context()), etcdclaims.ErrLost)
		w.ok(got[0].Complete(w.Context()))
	})
}

// Poison that kills its workers ends in the dead letters, naming all of them.
func TestPoison(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "poison", queue.MaxAttempts(2))
		for range 2 {
			victim, host := w.process(queue.Config{})
			b, err := victim.Claim(w.Context(), 1)
			w.ok(err)
			w.want(len(b.Deliveries), 1)
			host.Kill()
			w.want(len(w.tryClaim(q, 1)), 0) // and keeps house from now on
			time.Sleep(ttl + sec)
		}
		info := w.look(q, "poison")
		w.want(info.Where, queue.Dead)
		w.want(len(info.History), 2)
		if info.History[0].Owner == info.History[1].Owner {
			t.Errorf("one owner twice: %v", info.History)
		}
	})
}

func TestCancelAndPriority(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		w.enqueue(q, "b")
		w.enqueue(q, "c")
		w.ok(q.SetPriority(w.Context(), "c", 1))
		w.ok(q.Cancel(w.Context(), "a"))
		w.wantErr(q.Cancel(w.Context(), "a"), queue.ErrNotFound)
		got := w.tryClaim(q, 5)
		w.want(ids(got), "c b")
		w.wantErr(q.Cancel(w.Context(), "c"), queue.ErrTaken)
		w.wantErr(q.SetPriority(w.Context(), "c", 5), queue.ErrTaken)
		w.want(w.look(q, "b").Where, queue.Taken)
		w.ok(got[0].Release(w.Context()))
		w.want(w.look(q, "c").Priority, 1)
		w.ok(q.Cancel(w.Context(), "c"))
	})
}

func TestPause(t *testing.T) {
	virtually(t, func(w *world) {
		q, p := w.queue(queue.Config{}), w.queue(queue.Config{})
		w.enqueue(q, "a")
		w.ok(q.Pause(w.Context(), "maintenance"))
		w.wantErr(p.Pause(w.Context(), "twice"), queue.ErrUnchanged)
		b, err := p.TryClaim(w.Context(), 1)
		w.ok(err)
		w.want(b.Paused, true)
		w.want(len(b.Deliveries), 0)
		st, err := q.Stats(w.Context())
		w.ok(err)
		w.want(st.Paused.Why, "maintenance")
		got := make(chan string)
		go func() {
			b, err := p.Claim(context.Background(), 1)
			if err != nil {
				t.Error(err)
			}
			got <- ids(b.Deliveries)
		}()
		time.Sleep(time.Minute)
		begin := time.Now()
		w.ok(q.Resume(w.Context()))
		w.want(<-got, "a")
		if d := time.Since(begin); d > 100*time.Millisecond {
			t.Errorf("woken after %v", d)
		}
		w.wantErr(q.Resume(w.Context()), queue.ErrUnchanged)
	})
}

func TestMaxTaken(t *testing.T) {
	virtually(t, func(w *world) {
		cfg := queue.Config{MaxTaken: 2}
		q, p := w.queue(cfg), w.queue(cfg)
		for _, id := range []string{"a", "b", "c"} {
			w.enqueue(q, id)
		}
		first := w.tryClaim(q, 1)
		w.want(len(w.tryClaim(p, 5)), 1)
		w.want(len(w.tryClaim(p, 5)), 0)
		got := make(chan string)
		go func() {
			b, err := p.Claim(context.Background(), 1)
			if err != nil {
				t.Error(err)
			}
			got <- ids(b.Deliveries)
		}()
		time.Sleep(time.Minute)
		begin := time.Now()
		w.ok(first[0].Complete(w.Context()))
		w.want(<-got, "c")
		if d := time.Since(begin); d > 100*time.Millisecond {
			t.Errorf("the slot was taken after %v", d)
		}
	})
}

func TestMaxWaiting(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{MaxWaiting: 2})
		n, err := q.EnqueueAll(w.Context(), []queue.Item{queue.NewItem(nil, queue.ID("a")), queue.NewItem(nil, queue.ID("b")), queue.NewItem(nil, queue.ID("c"))})
		w.wantErr(err, queue.ErrFull)
		w.want(n, 2)
		added, err := q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID("b"))) // it is there
		w.ok(err)
		w.want(added, false)
		w.claim(q)
		w.enqueue(q, "c")
	})
}

// Two processes that see the same room do not both use it.
func TestMaxWaitingAcrossProcesses(t *testing.T) {
	virtually(t, func(w *world) {
		cfg := queue.Config{MaxWaiting: 2, TTL: time.Minute}
		q, host := w.process(cfg)
		p := w.queue(cfg)
		w.enqueue(q, "first") // its session is open
		held := make(chan struct{})
		host.Inject(claimtest.Fault{On: claimtest.Other, Hold: held})
		told := make(chan error, 1)
		go func() {
			_, err := q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID("late")))
			told <- err
		}()
		time.Sleep(100 * time.Millisecond) // it has seen that there is room
		w.enqueue(p, "second")
		close(held)
		w.wantErr(<-told, queue.ErrFull)
		st, err := q.Stats(w.Context())
		w.ok(err)
		w.want(st.Ready, 2)
	})
}

func TestHeartbeatWithAnotherDuration(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		l := w.claim(q)
		until, err := l.Heartbeat(w.Context(), 0)
		w.ok(err)
		if d := time.Until(until); d < ttl*8/10 || d > ttl {
			t.Errorf("heartbeat until %v from now", d)
		}
		before := l.Fence()
		_, err = l.Heartbeat(w.Context(), time.Minute)
		w.ok(err)
		if l.Fence() <= before || l.Remaining(time.Now()) < 50*sec {
			t.Errorf("fence %d after %d, remaining %v", l.Fence(), before, l.Remaining(time.Now()))
		}
		w.want(l.Expired(time.Now()), false)
		w.want(l.Expired(time.Now().Add(time.Minute)), true)
		w.ok(l.Check())
		w.ok(l.Complete(w.Context()))
		w.want(len(w.under("/taken/")), 0)
	})
}

// The lease lasts for the duration from the heartbeat on, also if the item moves to a
// session that was renewed some time before.
func TestHeartbeatRenewsOtherSession(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		for _, id := range []string{"a", "b"} {
			w.enqueue(q, id)
		}
		first, second := w.claim(q), w.claim(q)
		fresh, err := first.Heartbeat(w.Context(), time.Minute)
		w.ok(err)
		want := time.Until(fresh)
		time.Sleep(time.Minute / 4)
		until, err := second.Heartbeat(w.Context(), time.Minute)
		w.ok(err)
		if got := time.Until(until); got < want-sec {
			t.Errorf("the lease lasts for %v, that of a new session for %v", got, want)
		}
	})
}

// After a heartbeat of unknown outcome another worker may have the item: so Check says.
func TestHeartbeatOfUnknownOutcome(t *testing.T) {
	for _, carriedOut := range []bool{true, false} {
		virtually(t, func(w *world) {
			cfg := queue.Config{TTL: 30 * sec}
			q, other := w.queue(cfg), w.queue(cfg)
			p, host := w.process(cfg)
			w.enqueue(q, "warm")
			warm := w.claim(p)
			_, err := warm.Heartbeat(w.Context(), time.Minute) // the session for a minute is there now
			w.ok(err)
			w.enqueue(q, "a")
			l := w.claim(p)
			host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, LoseReply: carriedOut, LoseRequest: !carriedOut})
			ctx, cancel := context.WithTimeout(w.Context(), 8*sec)
			defer cancel()
			_, err = l.Heartbeat(ctx, time.Minute)
			w.wantErr(err, etcdclaims.ErrUnknown)
			w.wantErr(l.Check(), etcdclaims.ErrReleased)
			host.RemoveFaults()
			if !carriedOut {
				_, err = l.Heartbeat(w.Context(), time.Minute)
				w.ok(err)
				w.ok(l.Check())
				w.ok(l.Complete(w.Context()))
				return
			}
			w.want(len(w.tryClaim(p, 1)), 1) // what it could not learn of is given back, and had again
			w.want(len(w.tryClaim(other, 1)), 0)
			w.wantErr(l.Check(), etcdclaims.ErrReleased)
			w.wantErr(l.Complete(w.Context()), queue.ErrSuperseded)
		})
	}
}

// A lease that has completed its item itself is not told that another has.
func TestHeartbeatAfterUnknownComplete(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{TTL: 30 * sec})
		w.enqueue(q, "a")
		l := w.claim(q)
		host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, LoseReply: true})
		ctx, cancel := context.WithTimeout(w.Context(), 8*sec)
		defer cancel()
		w.wantErr(l.Complete(ctx), etcdclaims.ErrUnknown)
		host.RemoveFaults()
		_, err := l.Heartbeat(w.Context(), 0)
		w.wantErr(err, etcdclaims.ErrReleased)
	})
}

// A lease is data: another process can complete the item by its handle.
func TestHandle(t *testing.T) {
	virtually(t, func(w *world) {
		q, p := w.queue(queue.Config{}), w.queue(queue.Config{})
		w.enqueue(q, "a")
		w.enqueue(q, "b")
		l := w.claim(q)
		same, err := p.Adopt(w.Context(), l.Handle())
		w.ok(err)
		w.want(same.Fence(), l.Fence())
		w.wantErr(same.Check(), etcdclaims.ErrUnknown)
		w.ok(same.Complete(w.Context()))
		w.wantErr(l.Complete(w.Context()), queue.ErrCompleted)
		_, err = p.Adopt(w.Context(), l.Handle())
		w.wantErr(err, queue.ErrCompleted)

		l = w.claim(q)
		same, err = p.Adopt(w.Context(), l.Handle())
		w.ok(err)
		_, err = same.Heartbeat(w.Context(), 0)
		w.ok(err)
		w.ok(same.Check())
		w.wantErr(l.Complete(w.Context()), queue.ErrSuperseded)
		_, err = p.Adopt(w.Context(), "nonsense")
		if err == nil || !strings.Contains(err.Error(), "nonsense") {
			t.Errorf("a handle of nonsense: %v", err)
		}
		w.ok(same.Complete(w.Context()))
	})
}

func TestCloseGivesBack(t *testing.T) {
	virtually(t, func(w *world) {
		q, p := w.queue(queue.Config{}), w.queue(queue.Config{})
		w.enqueue(q, "a")
		l := w.claim(q)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		w.ok(q.Close(ctx))
		if l.Err() == nil || l.Context().Err() == nil {
			t.Error("the lease goes on")
		}
		w.want(w.claim(p).Attempt(), 1)
		_, err := q.TryClaim(w.Context(), 1)
		w.wantErr(err, etcdclaims.ErrClosed)
		w.want(len(w.under("/worker/")), 1)
	})
}

func TestStats(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		w.enqueue(q, "b", queue.Delay(time.Hour))
		w.enqueue(q, "c")
		w.claim(q)
		st, err := q.Stats(w.Context())
		w.ok(err)
		w.want([4]int{st.Ready, st.Later, st.Taken, st.Dead}, [4]int{1, 1, 1, 0})
		if !st.OldestReady.Equal(w.look(q, "c").Vesting) {
			t.Errorf("oldest ready %v", st.OldestReady)
		}
		n := 0
		for name, err := range queue.Active(w.Context(), etcdClaims(w)) {
			w.ok(err)
			w.want(name, "q")
			n++
		}
		w.want(n, 1)
	})
}

// Stats begins again if its revision is compacted while it reads, and learns from each try.
func TestStatsCompactedMeanwhile(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		for priority := range 4 {
			w.enqueue(q, fmt.Sprint(priority), queue.Priority(priority))
		}
		var sent atomic.Int64
		host.Inject(claimtest.Fault{Times: -1, Saw: func(any) {
			if sent.Add(1)%2 == 0 {
				_, err := w.server.Admin().Put(context.Background(), "/later", "")
				w.ok(err)
				w.server.Compact(w.T)
			}
		}})
		st, err := q.Stats(w.Context())
		w.ok(err)
		w.want(st.Ready, 4)
		host.RemoveFaults()
		if !st.OldestReady.Equal(w.look(q, "0").Vesting) {
			t.Errorf("oldest ready %v", st.OldestReady)
		}
	})
}

// The oldest item is found among those of all priorities, by one small read for each.
func TestOldestReady(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		p := w.queue(queue.Config{})
		oldest := func() string {
			st, err := q.Stats(w.Context())
			w.ok(err)
			for info, err := range q.Waiting(w.Context()) {
				w.ok(err)
				if info.Vesting.Equal(st.OldestReady) {
					return info.ID
				}
			}
			return "none"
		}
		w.want(oldest(), "none")
		for _, priority := range []int{5, -7, 300, 0, 5, 300} {
			w.enqueue(p, fmt.Sprint(priority, "-", time.Now().Unix()), queue.Priority(priority))
			time.Sleep(sec)
		}
		first := oldest()
		if !strings.HasPrefix(first, "5-") {
			t.Errorf("oldest is %s", first)
		}
		var reads, keys atomic.Int64
		host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, Edit: func(reply any) {
			reads.Add(1)
			for _, r := range reply.(*etcdserverpb.TxnResponse).Responses {
				keys.Add(int64(len(r.GetResponseRange().Kvs)))
			}
		}})
		_, err := q.Stats(w.Context())
		w.ok(err)
		w.want(reads.Load(), int64(1))
		w.want(keys.Load(), int64(4))
		host.RemoveFaults()
		w.ok(p.Cancel(w.Context(), first))
		if id := oldest(); !strings.HasPrefix(id, "-7-") {
			t.Errorf("oldest is %s", id)
		}
	})
}

// The note that a queue has work goes when the queue has been empty for a while.
func TestInactive(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		w.ok(w.claim(q).Complete(w.Context()))
		time.Sleep(3 * time.Minute)
		w.want(len(w.under("/active/")), 0)
		w.enqueue(q, "b")
		w.want(len(w.under("/active/")), 1)
	})
}

func TestBadInput(t *testing.T) {
	virtually(t, func(w *world) {
		claims := etcdClaims(w)
		for _, cfg := range []queue.Config{{}, {Name: "a/b"}, {Name: "a\x00"}, {Name: "q", MaxTaken: -1}, {Name: "q", MaxTaken: 10_001}, {Name: "q", TTL: -1}, {Name: "q", Retention: 1}} {
			if _, err := queue.New(claims, cfg); err == nil {
				t.Errorf("%+v was accepted", cfg)
			}
		}
		q := w.queue(queue.Config{})
		for name, it := range map[string]queue.Item{
			"zero": {}, "empty id": queue.NewItem(nil, queue.ID("")), "NUL": queue.NewItem(nil, queue.ID("a\x00")),
			"long id": queue.NewItem(nil, queue.ID(strings.Repeat("x", 513))), "payload": queue.NewItem(make([]byte, queue.MaxPayloadBytes+1)),
			"delay": queue.NewItem(nil, queue.Delay(-1)), "attempts": queue.NewItem(nil, queue.MaxAttempts(-1)), "topic": queue.NewItem(nil, queue.Topic("a/b")),
		} {
			if _, err := q.Enqueue(w.Context(), it); err == nil {
				t.Errorf("item with bad %s was accepted", name)
			}
		}
		if _, err := q.TryClaim(w.Context(), 0); err == nil {
			t.Error("a claim of no items was accepted")
		}
		w.want(len(w.under("")), 0)
		// The largest payload is accepted, and comes back.
		_, err := q.Enqueue(w.Context(), queue.NewItem(make([]byte, queue.MaxPayloadBytes)))
		w.ok(err)
		w.want(len(w.claim(q).Payload()), queue.MaxPayloadBytes)
	})
}

// A delivery has an id of its own, a key that orders it, and the time that is left of its lease.
func TestLeaseValues(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "a", queue.Priority(7))
		w.enqueue(q, "b", queue.Priority(7))
		l, next := w.claim(q), w.claim(q)
		w.want(l.DeliveryID(), queue.DeliveryID("a", l.Holder(), l.Obtained()))
		if l.DeliveryID() == next.DeliveryID() || l.DeliveryID() == queue.DeliveryID("a", l.Holder(), l.Obtained().Add(1)) {
			t.Error("two leases have one id")
		}
		if l.Key() >= next.Key() {
			t.Errorf("key %s is not before %s", l.Key(), next.Key())
		}
		now := time.Now()
		left := l.Remaining(now)
		if left <= 0 || left > ttl || l.Remaining(now.Add(left)) != 0 || l.Remaining(now.Add(time.Second)) != left-time.Second {
			t.Errorf("remaining %v", left)
		}
		if l.Expired(now) || !l.Expired(now.Add(left)) {
			t.Error("expired at the wrong time")
		}
		w.ok(l.Complete(w.Context()))
		w.want(l.Remaining(now), time.Duration(0))
		w.want(l.Expired(now), true)
		adopted, err := q.Adopt(w.Context(), next.Handle())
		w.ok(err)
		w.want(adopted.Expired(time.Now()), true)
	})
}

// A worker whose session was lost has nothing left to give back: to close its queue is
// no failure.
func TestCloseAfterLoss(t *testing.T) {
	virtually(t, func(w *world) {
		late, host := w.process(queue.Config{})
		w.enqueue(late, "a")
		l := w.claim(late)
		host.Cut()
		time.Sleep(2 * ttl)
		host.Heal()
		w.wantErr(l.Complete(w.Context()), queue.ErrExpired)
		w.ok(late.Close(w.Context()))
	})
}

// The order and the bounds of a queue change once all processes have closed it.
func TestReconfigure(t *testing.T) {
	virtually(t, func(w *world) {
		more := queue.Config{MaxTaken: 2, MaxWaiting: 7}
		w.wantErr(w.queue(more).Reconfigure(w.Context()), queue.ErrNotFound)
		q := w.queue(queue.Config{MaxTaken: 1})
		w.enqueue(q, "a")
		l := w.claim(q)
		next := w.queue(more)
		_, err := next.Enqueue(w.Context(), queue.NewItem(nil))
		if w.wantErr(err, queue.ErrConfig); !strings.Contains(err.Error(), "Config.MaxTaken is 2, the queue has 1; Config.MaxWaiting is 7, the queue has 0") || strings.Contains(err.Error(), "/spec") {
			t.Error(err)
		}
		err = next.Reconfigure(w.Context())
		if w.wantErr(err, queue.ErrInUse); !strings.HasPrefix(err.Error(), `reconfigure: queue "q": queue is in use: Config.MaxTaken is 2`) {
			t.Error(err)
		}
		w.ok(l.Release(w.Context()))
		w.ok(q.Close(w.Context()))
		w.wantErr(w.queue(queue.Config{HigherFirst: true}).Reconfigure(w.Context()), queue.ErrInUse) // "a" waits
		w.ok(next.Reconfigure(w.Context()))
		w.ok(next.Reconfigure(w.Context()))
		w.want(ids(w.tryClaim(next, 3)), "a")
		open, err := queue.Open(w.Context(), etcdClaims(w), "q")
		w.ok(err)
		w.want(open.Config().MaxTaken, 2)
		w.want(open.Config().MaxWaiting, 7)
		w.ok(open.Close(w.Context()))
	})
}

// A lease time that no claim can have is an error of New, not of the first item.
func TestTTLRefused(t *testing.T) {
	virtually(t, func(w *world) {
		for ttl, says := range map[time.Duration]string{
			time.Millisecond: `queue "q": TTL 1ms is below`,
			-time.Second:     `queue "q": TTL -1s is negative`,
			1 << 62:          "is over the limit of 8760h0m0s",
		} {
			if q, err := queue.New(etcdClaims(w), queue.Config{Name: "q", TTL: ttl}); q != nil || err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v; want %q", err, says)
			}
		}
	})
}

// Each error of a WorkerConfig names the field.
func TestWorkerConfigRefused(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		handler := func(context.Context, *queue.Delivery) error { return nil }
		for says, cfg := range map[string]queue.WorkerConfig{
			"set WorkerConfig.Handler, or Handlers":     {},
			"WorkerConfig.Concurrency -1 is negative":   {Handler: handler, Concurrency: -1},
			"WorkerConfig.Batch -1 is negative":         {Handler: handler, Batch: -1},
			"WorkerConfig.Grace -1ns is negative":       {Handler: handler, Grace: -1},
			"WorkerConfig.StopTimeout -1ns is negative": {Handler: handler, StopTimeout: -1},
			"WorkerConfig.TTL 3s is below 5s":           {Handler: handler, TTL: 3 * time.Second},
		} {
			ended, cancel := context.WithCancel(w.Context())
			cancel() // no worker begins
			if err := q.Work(ended, cfg); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v; want %q", err, says)
			}
			err := queue.WorkMany(ended, etcdClaims(w), queue.ManyConfig{Worker: cfg})
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("of many: %v; want %q", err, says)
			}
		}
	})
}
