package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// discard makes a dead letter of an item.
func (w *world) discard(q *queue.Queue, id string) {
	w.Helper()
	w.enqueue(q, id, queue.Priority(0))
	l := w.claim(q)
	w.want(l.ID(), id)
	w.ok(l.Discard(w.Context(), "no use"))
}

// dead returns the ids of the dead letters.
func (w *world) dead(q *queue.Queue) string {
	w.Helper()
	var found []string
	for info, err := range q.DeadLetters(w.Context()) {
		w.ok(err)
		found = append(found, info.ID)
	}
	return strings.Join(found, " ")
}

// The keeper removes dead letters past their retention, with all their keys, and no
// others.
func TestDeadRetention(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{DeadRetention: 20 * time.Minute})
		w.discard(q, "old")
		time.Sleep(12 * time.Minute)
		w.discard(q, "young")
		time.Sleep(7 * time.Minute) // 19 minutes after the first
		w.want(w.dead(q), "old young")
		time.Sleep(7 * time.Minute) // the keeper looks every five
		w.want(w.dead(q), "young")
		_, err := q.Look(w.Context(), "old")
		w.wantErr(err, queue.ErrNotFound)
		w.want(len(w.under("/content/")), 1)
		time.Sleep(13 * time.Minute)
		w.want(w.dead(q), "")
		w.want(len(w.under("/content/"))+len(w.under("/place/")), 0)
		w.enqueue(q, "old") // its id is free again
	})
	t.Run("for ever", func(t *testing.T) {
		virtually(t, func(w *world) {
			q := w.queue(queue.Config{DeadRetention: -1})
			w.discard(q, "a")
			time.Sleep(time.Hour)
			w.want(w.dead(q), "a")
		})
	})
}

func TestRedriveAll(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		n, err := q.RedriveAll(w.Context())
		w.ok(err)
		w.want(n, 0)
		const letters = 230 // more than two pages
		for i := range letters {
			w.discard(q, fmt.Sprintf("%03d", i))
		}
		w.enqueue(q, "alive")
		n, err = q.RedriveAll(w.Context())
		w.ok(err)
		w.want(n, letters)
		w.want(w.dead(q), "")
		st, err := q.Stats(w.Context())
		w.ok(err)
		w.want(st.Ready, letters+1)
		l := w.claim(q)
		w.want(l.ID(), "000")
		w.want(l.Attempt(), 1)
		w.want(len(l.History()), 1)
		w.want(l.History()[0].Ending, "discarded")
	})
}

// Taken lists the items that workers have, each with its worker, its fence and the start
// of its lease. Stats counts them.
func TestLeased(t *testing.T) {
	virtually(t, func(w *world) {
		q, p := w.queue(queue.Config{}), w.queue(queue.Config{})
		for _, id := range []string{"a", "b", "c", "d"} {
			w.enqueue(q, id)
		}
		held := map[string]*queue.Delivery{}
		for _, l := range append(w.tryClaim(q, 2), w.tryClaim(p, 1)...) {
			held[l.ID()] = l
		}
		w.want(len(held), 3)
		if held["a"].Holder() == held["c"].Holder() {
			t.Fatal("two processes have one name")
		}
		listed := func() (ids []string) {
			t.Helper()
			for info, err := range q.Taken(w.Context()) {
				w.ok(err)
				l := held[info.ID]
				if l == nil {
					t.Fatalf("%s is listed", info.ID)
				}
				w.want(info.Where, queue.Taken)
				w.want(info.Owner, l.Holder())
				w.want(info.Fence, l.Fence())
				w.want(info.Attempts, 1)
				w.want(info.Since.Equal(l.Obtained()), true)
				w.want(len(info.Payload), 0)
				ids = append(ids, info.ID)
			}
			slices.Sort(ids)
			st, err := p.Stats(w.Context())
			w.ok(err)
			w.want(st.Taken, len(ids))
			return ids
		}
		w.want(strings.Join(listed(), " "), "a b c")
		w.ok(held["b"].Complete(w.Context()))
		_, err := held["c"].Heartbeat(w.Context(), time.Minute) // it is under another session then
		w.ok(err)
		w.want(strings.Join(listed(), " "), "a c")
	})
}

// An item keeps its last attempts, and the beginning of each error.
func TestHistoryIsBounded(t *testing.T) {
	virtually(t, func(w *world) {
		const kept, mostBytes = 20, 1024
		const attempts = kept + 5
		q := w.queue(queue.Config{MaxAttempts: attempts})
		w.enqueue(q, "a")
		long := strings.Repeat("ü", mostBytes)
		for i := range attempts {
			b, err := q.Claim(w.Context(), 1)
			w.ok(err)
			w.want(b.Deliveries[0].Attempt(), i+1)
			_, err = b.Deliveries[0].Fail(w.Context(), errors.New(long), queue.Backoff(etcdclaims.ExponentialBackoff(time.Millisecond, time.Millisecond)))
			w.ok(err)
		}
		info := w.look(q, "a")
		w.want(info.Where, queue.Dead)
		w.want(info.Attempts, attempts)
		w.want(len(info.History), kept)
		for i, a := range info.History {
			w.want(a.Number, i+1+attempts-kept)
			begin := strings.TrimSuffix(a.Error, "…")
			if len(a.Error) > mostBytes || len(a.Error) < mostBytes-4 || !utf8.ValidString(a.Error) ||
				begin == a.Error || !strings.HasPrefix(long, begin) {
				t.Errorf("the error of attempt %d is %d bytes: %q", a.Number, len(a.Error), a.Error)
			}
		}
		if n := len(info.Why); n > mostBytes+len("failed: ") {
			t.Errorf("the reason is %d bytes", n)
		}
	})
}

// Rolling deploys burn no attempt: a handler that runs finishes, and what was claimed and
// not begun is given back, whenever the stop comes.
func TestDeployBurnsNoAttempt(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		const n = 60
		for i := range n {
			w.enqueue(q, fmt.Sprint(i), queue.MaxAttempts(1))
		}
		begun := make(chan int, 10*n)
		handler := func(_ context.Context, l *queue.Delivery) error {
			begun <- l.Attempt()
			time.Sleep(200 * time.Millisecond)
			return nil
		}
		deploys := 0
		for left := n; left > 0 && deploys < 200; deploys++ {
			p, host := w.process(queue.Config{})
			slow := trafficOf(host) // so that the stop can come between a request and its reply
			stop := w.works(p, queue.WorkerConfig{Concurrency: 4, Handler: handler})
			time.Sleep(time.Duration(20+7*deploys%100) * time.Millisecond)
			stop()
			if sent, _ := slow.reset(); sent == 0 {
				t.Fatal("the worker did nothing")
			}
			w.ok(p.Close(w.Context()))
			st, err := q.Stats(w.Context())
			w.ok(err)
			w.want(st.Taken+st.Dead+st.Later, 0)
			left = st.Ready
		}
		close(begun)
		times := 0
		for attempt := range begun {
			w.want(attempt, 1)
			times++
		}
		w.want(times, n)
		t.Logf("%d deploys", deploys)
		if deploys < 5 {
			t.Errorf("%d deploys stopped nothing", deploys)
		}
	})
}

// Dead letters are redriven also if that takes longer than etcd keeps its history.
func TestRedriveAllBesideCompaction(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		const n = 250
		items := make([]queue.Item, n)
		for i := range items {
			items[i] = queue.NewItem(nil)
		}
		_, err := q.EnqueueAll(w.Context(), items)
		w.ok(err)
		for left := n; left > 0; {
			for _, l := range w.tryClaim(q, left) {
				w.ok(l.Discard(w.Context(), "x"))
				left--
			}
		}
		var sent atomic.Int64
		host.Inject(claimtest.Fault{Times: -1, Saw: func(any) {
			if sent.Add(1)%100 == 0 {
				resp, err := w.server.Admin().Put(context.Background(), "/later", "")
				w.ok(err)
				_, err = w.server.Admin().Compact(context.Background(), resp.Header.Revision)
				w.ok(err)
			}
		}})
		got, err := q.RedriveAll(w.Context())
		w.ok(err)
		w.want(got, n)
	})
}

// Between the list and the request that redrives, another process redrives one letter, and another
// letter dies anew. RedriveAll does not move the first again, and does not leave the second behind.
func TestRedriveAllBesideAnother(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		other := w.queue(queue.Config{})
		for _, id := range []string{"a", "b", "c"} {
			w.discard(q, id)
		}
		var once sync.Once
		meanwhile := host.Inject(claimtest.Fault{Times: -1, Saw: func(req any) {
			if text := fmt.Sprint(req); !strings.Contains(text, "request_put") || !strings.Contains(text, "/ready/") {
				return
			}
			once.Do(func() {
				w.ok(other.Redrive(w.Context(), "b"))
				w.ok(w.claim(other).Discard(w.Context(), "x"))
				w.ok(other.Redrive(w.Context(), "a"))
			})
		}})
		n, err := q.RedriveAll(w.Context())
		w.ok(err)
		meanwhile.Remove()
		w.want(n, 2)
		w.want(w.dead(q), "")
		w.want(len(w.under("/ready/")), 3)
		w.want(ids(w.tryClaim(q, 10)), "a b c")
	})
}

// A second key of one dead letter, as a restore of some keys leaves, does not stop RedriveAll, whether it
// comes before the letter's own key or behind it.
func TestRedriveAllWithTwoKeys(t *testing.T) {
	for name, second := range map[string]string{"before": "!", "behind": "~"} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q := w.queue(queue.Config{})
				w.discard(q, "a")
				own := w.under("/dead/")[0]
				letter, err := w.server.Admin().Get(w.Context(), own)
				w.ok(err)
				at := strings.LastIndex(own, "/") + 1
				_, err = w.server.Admin().Put(w.Context(), own[:at]+second+own[at:], string(letter.Kvs[0].Value))
				w.ok(err)
				w.discard(q, "b")
				n, err := q.RedriveAll(w.Context())
				w.ok(err)
				w.want(n, 2)
				w.want(ids(w.tryClaim(q, 10)), "a b")
			})
		})
	}
}

// A key below the dead letters that is of none does not keep them.
func TestDeadRetentionBesideForeignKey(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{DeadRetention: 20 * time.Minute})
		w.discard(q, "old")
		root, _, _ := strings.Cut(w.under("/dead/")[0], "/dead/")
		for i := range 3 {
			_, err := w.server.Admin().Put(w.Context(), fmt.Sprint(root, "/dead/!", i), "")
			w.ok(err)
		}
		time.Sleep(19 * time.Minute)
		w.want(w.dead(q), "old")
		time.Sleep(7 * time.Minute) // the keeper looks every five
		w.want(w.dead(q), "")
		w.want(len(w.under("/content/")), 0)
	})
}
