package queue_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// remove deletes the first key of the queues that contains part and has the suffix, as
// an operator's hand or a restore of some keys would.
func (w *world) remove(part, suffix string) {
	w.Helper()
	for _, key := range w.under(part) {
		if strings.HasSuffix(key, suffix) {
			_, err := w.server.Admin().Delete(w.Context(), key)
			w.ok(err)
			return
		}
	}
	w.Fatalf("no key contains %q and ends with %q", part, suffix)
}

// A queue with items is noted as one with work again if the note was removed, whether an
// item waits, has not vested, or is taken.
func TestHealActive(t *testing.T) {
	for where, opts := range map[queue.Where][]queue.ItemOption{queue.Ready: nil, queue.Later: {queue.Delay(time.Hour)}, queue.Taken: nil} {
		virtually(t, func(w *world) {
			q := w.queue(queue.Config{})
			w.enqueue(q, "a", opts...)
			if where == queue.Taken {
				w.claim(q)
			}
			w.want(len(w.tryClaim(w.queue(queue.Config{}), 1)) == 1, where == queue.Ready) // it is the keeper
			w.remove("/active/", "")
			time.Sleep(2 * ttl)
			w.want(len(w.under("/active/")), 1)
		})
	}
	virtually(t, func(w *world) { // while the only process is one of WorkMany
		s, _, stop := w.workMany(1, 30*sec)
		defer stop()
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		time.Sleep(sec)
		w.enqueue(q, "b")
		w.remove("/active/", "")
		time.Sleep(2 * time.Minute)
		w.want(len(s.all()), 2)
	})
}

// An item whose key was removed waits again, in its place, once; a dead letter is one
// again; and a completed item does not come back.
func TestHealItem(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{HigherFirst: true})
		w.enqueue(q, "done")
		w.ok(w.claim(q).Complete(w.Context()))
		w.enqueue(q, "dead")
		w.ok(w.claim(q).Discard(w.Context(), "because"))
		w.enqueue(q, "moved")
		w.ok(w.claim(q).Release(w.Context()))
		w.enqueue(q, "held", queue.Priority(50))
		held := w.tryClaim(q, 2)[1]
		w.want(held.ID(), "held")
		w.want(len(w.under("/taken/")), 2)
		w.remove("/taken/", "/moved")
		w.remove("/dead/", "")
		w.enqueue(q, "first", queue.Priority(300), queue.Topic("t"))
		w.remove("/index/ready/", "")
		w.enqueue(q, "later", queue.Delay(time.Hour))
		w.remove("/index/later/", "")
		for _, id := range []string{"first", "later", "moved", "dead"} {
			if _, err := q.Look(w.Context(), id); err == nil || !strings.Contains(err.Error(), "being moved") {
				t.Fatalf("%s: %v", id, err)
			}
		}
		time.Sleep(time.Minute)
		first := w.look(q, "first")
		w.want(first.Where, queue.Ready)
		w.want(first.Priority, 300)
		w.want(first.Topic, "t")
		w.want(w.look(q, "later").Where, queue.Later)
		w.want(w.look(q, "moved").Where, queue.Ready)
		w.want(w.look(q, "dead").Where, queue.Dead)
		w.want(w.look(q, "done").Where, queue.Completed)
		w.ok(held.Complete(w.Context()))
		w.want(ids(w.tryClaim(q, 9)), "first moved")
		time.Sleep(time.Minute)
		w.want(len(w.under("/index/ready/")), 0)
	})
}

// What waits elsewhere than its place says, where vesting takes it, is not put a second
// time.
func TestHealLeavesVested(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		_, err := w.claim(q).Snooze(w.Context(), time.Hour)
		w.ok(err)
		from := w.under("/index/later/")[0]
		root, rest, _ := strings.Cut(from, "later/")
		at := strings.Split(rest, "/")
		to := root + "ready/" + at[1] + "/" + at[0] + "/" + at[2]
		resp, err := w.server.Admin().Get(w.Context(), from)
		w.ok(err)
		_, err = w.server.Admin().Txn(w.Context()).Then(clientv3.OpDelete(from), clientv3.OpPut(to, string(resp.Kvs[0].Value))).Commit()
		w.ok(err)
		time.Sleep(time.Minute)
		w.want(len(w.under("/index/later/"))+len(w.under("/index/ready/")), 1)
	})
}

// A slot whose item is gone is free again.
func TestHealSlot(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{MaxTaken: 2})
		w.enqueue(q, "a")
		w.enqueue(q, "b")
		w.enqueue(q, "c")
		held := w.tryClaim(q, 2)
		w.want(len(held), 2)
		w.remove("/taken/", "")
		time.Sleep(time.Minute)
		w.want(len(w.under("/slot/")), 1)
		w.want(len(w.tryClaim(q, 2)), 1)
	})
}

// An item that has lost its content is a dead letter that people find. It cannot be
// redriven, and its id can be enqueued again once it was cancelled.
func TestItemWithoutContent(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "a")
		w.remove("/content/a", "")
		w.want(len(w.tryClaim(q, 1)), 0)
		time.Sleep(sec)
		info := w.look(q, "a")
		w.want(info.Where, queue.Dead)
		w.want(strings.Contains(info.Why, "no content"), true)
		w.wantErr(q.Redrive(w.Context(), "a"), queue.ErrNotFound)
		n, err := q.RedriveAll(w.Context())
		w.ok(err)
		w.want(n, 0)
		w.ok(q.Cancel(w.Context(), "a"))
		w.want(len(w.under("/dead/"))+len(w.under("/place/"))+len(w.under("/content/")), 0)
		w.enqueue(q, "a")
		w.ok(w.claim(q).Complete(w.Context()))
	})
}

// So it is if etcd has no space for the dead letter at first.
func TestItemWithoutContentInNoSpace(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		w.enqueue(q, "a")
		w.remove("/content/a", "")
		var once sync.Once
		host.Inject(claimtest.Fault{Times: -1, Saw: func(req any) {
			if text := fmt.Sprint(req); strings.Contains(text, "request_put") && strings.Contains(text, "/dead/") {
				once.Do(func() { w.server.FillQuota(w.T) })
			}
		}})
		w.want(len(w.tryClaim(q, 1)), 0)
		time.Sleep(sec)
		w.want(len(w.under("/taken/")), 1)
		w.server.FreeQuota(w.T)
		time.Sleep(time.Minute)
		w.want(len(w.tryClaim(q, 1)), 0)
		time.Sleep(sec)
		w.want(w.look(q, "a").Where, queue.Dead)
	})
}

// A second key of one item, as a restore of some keys leaves, neither stops the queue nor
// gives one worker two leases of the item.
func TestItemWithTwoKeys(t *testing.T) {
	for name, n := range map[string]int{"at once": 10, "one by one": 1} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q := w.queue(queue.Config{})
				w.enqueue(q, "a")
				w.enqueue(q, "b")
				old, err := w.server.Admin().Get(w.Context(), w.under("/ready/")[0])
				w.ok(err)
				w.ok(q.SetPriority(w.Context(), "a", 50))
				_, err = w.server.Admin().Put(w.Context(), string(old.Kvs[0].Key), string(old.Kvs[0].Value))
				w.ok(err)
				w.want(len(w.under("/ready/")), 3)
				var got []*queue.Delivery
				for range 4 {
					got = append(got, w.tryClaim(q, n)...)
				}
				w.want(ids(got), "a b")
				for _, l := range got {
					w.ok(l.Complete(w.Context()))
				}
				w.want(len(w.under("/ready/")), 0)
			})
		})
	}
}

// Nor does one among the items that have not vested, which the claimers and the keeper move many at a
// time.
func TestLaterItemWithTwoKeys(t *testing.T) {
	for name, keeps := range map[string]bool{"claimer": false, "keeper": true} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q := w.queue(queue.Config{})
				if keeps {
					w.want(len(w.tryClaim(q, 1)), 0) // and keeps house from now on
				}
				items := make([]queue.Item, 80)
				for i := range items {
					items[i] = queue.NewItem(nil, queue.ID(fmt.Sprint(i)), queue.Delay(20*sec))
				}
				_, err := q.EnqueueAll(w.Context(), items)
				w.ok(err)
				w.ok(q.SetPriority(w.Context(), "7", 50))
				old, err := w.server.Admin().Get(w.Context(), w.under("/later/")[0])
				w.ok(err)
				w.ok(q.SetPriority(w.Context(), "7", 40))
				_, err = w.server.Admin().Put(w.Context(), string(old.Kvs[0].Key), string(old.Kvs[0].Value))
				w.ok(err)
				w.want(len(w.under("/later/")), len(items)+1)
				time.Sleep(30 * sec)
				w.want(len(w.under("/later/")) == 0, keeps)
				var got []*queue.Delivery
				for range 5 {
					got = append(got, w.tryClaim(q, len(items))...)
				}
				w.want(len(got), len(items))
				for _, l := range got {
					w.ok(l.Complete(w.Context()))
				}
				w.want(len(w.under("/index/later/"))+len(w.under("/index/ready/")), 0)
			})
		})
	}
}

// No request of the package leaves a second key. If one is put while another process has the
// item, it is taken as documented: once for each process, with a greater fence, and nothing of
// the item is left when both have completed it.
func TestSecondKeyOfAnotherProcess(t *testing.T) {
	for name, move := range map[string]func(w *world, q *queue.Queue){
		"where it was enqueued": func(*world, *queue.Queue) {},
		"where it was before it moved": func(w *world, q *queue.Queue) {
			w.ok(q.SetPriority(w.Context(), "a", 50))
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q, other := w.queue(queue.Config{}), w.queue(queue.Config{})
				w.enqueue(q, "a")
				old, err := w.server.Admin().Get(w.Context(), w.under("/ready/")[0])
				w.ok(err)
				move(w, q)
				first := w.claim(q)
				w.want(len(w.tryClaim(other, 1)), 0)
				_, err = w.server.Admin().Put(w.Context(), string(old.Kvs[0].Key), string(old.Kvs[0].Value))
				w.ok(err)
				second := w.claim(other)
				w.want(second.ID(), "a")
				w.want(second.Token().Fence > first.Token().Fence, true)
				w.want(len(w.tryClaim(q, 1))+len(w.tryClaim(other, 1)), 0)
				w.ok(second.Complete(w.Context()))
				w.ok(first.Complete(w.Context()))
				time.Sleep(2 * time.Minute)
				w.want(len(w.under("/taken/"))+len(w.under("/index/ready/"))+len(w.under("/dead/")), 0)
			})
		})
	}
}

// A taken key that no lease is of, as a restore of some keys leaves one, does not keep its item
// from being claimed.
func TestTakenKeyOfNoLease(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.enqueue(q, "keep")
		w.tryClaim(q, 1)
		taken := w.under("/taken/")[0]
		w.enqueue(q, "x")
		x, err := w.server.Admin().Get(w.Context(), w.under("/ready/")[0])
		w.ok(err)
		_, err = w.server.Admin().Put(w.Context(), strings.TrimSuffix(taken, "keep")+"x", string(x.Kvs[0].Value))
		w.ok(err)
		var got []*queue.Delivery
		for range 5 {
			got = append(got, w.tryClaim(q, 1)...)
			time.Sleep(time.Minute)
		}
		w.want(ids(got), "x")
	})
}
