package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// skews are by how much the clock of a machine is wrong.
var skews = map[string]time.Duration{"an hour": time.Hour, "30 days": 30 * 24 * time.Hour}

// skewed is process on a machine whose clock is ahead by d.
func (w *world) skewed(cfg queue.Config, d time.Duration) (*queue.Queue, *claimtest.Host) {
	w.Helper()
	q, host := w.process(cfg)
	host.StepClock(d)
	return q, host
}

// An item that a worker fails, snoozes or enqueues with a delay vests by the worker's clock: to the
// others it waits shorter or longer by the difference.
func TestSkewedWorker(t *testing.T) {
	testetcd.SkipRace(t)
	const wait = 10 * sec
	for name, skew := range skews {
		for _, d := range []time.Duration{skew, -skew} {
			t.Run(map[bool]string{true: "fast by ", false: "slow by "}[d > 0]+name, func(t *testing.T) {
				virtually(t, func(w *world) {
					q := w.queue(queue.Config{})
					w.want(len(w.tryClaim(q, 1)), 0) // keeps house from now on
					time.Sleep(sec)
					worker, _ := w.skewed(queue.Config{}, d)
					for id, end := range map[string]func(l *queue.Delivery) error{
						"failed": func(l *queue.Delivery) error {
							_, err := l.Fail(w.Context(), errors.New("x"), queue.Backoff(etcdclaims.ExponentialBackoff(wait, wait)))
							return err
						},
						"snoozed": func(l *queue.Delivery) error { _, err := l.Snooze(w.Context(), wait); return err },
					} {
						w.enqueue(q, id)
						l := w.claim(worker)
						w.want(l.ID(), id)
						w.ok(end(l))
						vesting := w.look(q, id).Vesting
						if early := time.Now().Add(d + wait).Sub(vesting); early < 0 || early > wait/2 {
							t.Errorf("%s until %v, which is %v before its wait ends by the worker's clock", id, vesting, early)
						}
						time.Sleep(sec)
						w.want(w.look(q, id).Where, map[bool]queue.Where{true: queue.Later, false: queue.Ready}[d > 0])
						w.ok(q.Cancel(w.Context(), id))
					}
					_, err := worker.Enqueue(w.Context(), queue.NewItem(nil, queue.Delay(wait)))
					w.ok(err)
					time.Sleep(sec)
					w.want(len(w.tryClaim(q, 1)), map[bool]int{true: 0, false: 1}[d > 0])
				})
			})
		}
	}
}

// An item that has been visible stays so: it does not vest anew by the clock of the process that
// gives it back, recovers it or changes its priority.
func TestVisibleByAnotherClock(t *testing.T) {
	for name, skew := range skews {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				ahead, _ := w.skewed(queue.Config{}, skew)
				q, _ := w.process(queue.Config{})
				w.enqueue(ahead, "a")
				w.ok(w.claim(q).Release(w.Context()))
				w.want(w.look(q, "a").Where, queue.Ready)
				w.ok(q.SetPriority(w.Context(), "a", 7))
				w.want(w.look(q, "a").Where, queue.Ready)
				w.claim(q)
				w.ok(q.Close(w.Context()))
				q, host := w.process(queue.Config{})
				w.want(w.claim(q).Attempt(), 1)
				host.Kill()
				time.Sleep(ttl + sec)
				q = w.queue(queue.Config{})
				w.want(w.claim(q).Attempt(), 2)
			})
		})
	}
}

// A keeper whose clock is ahead moves delayed items too early, and one whose clock is behind leaves
// them to the claimers, who go by their own clocks.
func TestSkewedKeeper(t *testing.T) {
	testetcd.SkipRace(t)
	for name, skew := range skews {
		t.Run("fast by "+name, func(t *testing.T) {
			virtually(t, func(w *world) {
				keeper, _ := w.skewed(queue.Config{}, skew)
				w.want(len(w.tryClaim(keeper, 1)), 0)
				time.Sleep(sec)
				q := w.queue(queue.Config{})
				w.enqueue(q, "before", queue.Delay(skew-time.Minute))
				w.enqueue(q, "after", queue.Delay(skew+time.Hour))
				time.Sleep(sec)
				w.want(w.look(q, "before").Where, queue.Ready)
				w.want(w.look(q, "after").Where, queue.Later)
			})
		})
		t.Run("slow by "+name, func(t *testing.T) {
			virtually(t, func(w *world) {
				keeper, _ := w.skewed(queue.Config{}, -skew)
				w.want(len(w.tryClaim(keeper, 1)), 0)
				time.Sleep(sec)
				q := w.queue(queue.Config{})
				w.enqueue(q, "a", queue.Delay(10*sec))
				begin := time.Now()
				b, err := q.Claim(w.Context(), 1)
				w.ok(err)
				w.want(ids(b.Deliveries), "a")
				if d := time.Since(begin); d < 10*sec || d > 12*sec {
					t.Errorf("claimed after %v", d)
				}
			})
		})
	}
}

// A keeper whose clock is ahead by as long as dead letters are kept does not remove them at once.
func TestFastKeeperTrimsSlowly(t *testing.T) {
	testetcd.SkipRace(t)
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{DeadRetention: time.Hour})
		w.discard(q, "a")
		time.Sleep(6 * time.Minute)
		host.StepClock(time.Hour)
		time.Sleep(20 * time.Minute)
		w.want(w.dead(q), "a")
		host.StepClock(-time.Hour)
		time.Sleep(33 * time.Minute) // 59 minutes old
		w.want(w.dead(q), "a")
		time.Sleep(7 * time.Minute)
		w.want(w.dead(q), "")
	})
}

// An id is remembered for its whole Retention. The lease that many ids share gets none any more when its
// time is over, counted from before etcd was asked for it, and with the time for which the machine slept.
func TestWholeRetention(t *testing.T) {
	const retention = 100 * sec
	complete := func(w *world, q *queue.Queue, id string) {
		w.Helper()
		w.enqueue(q, id)
		w.ok(w.claim(q).Complete(w.Context()))
	}
	t.Run("late answer", func(t *testing.T) {
		virtually(t, func(w *world) {
			q, host := w.process(queue.Config{Retention: retention})
			w.want(len(w.tryClaim(q, 1)), 0)
			time.Sleep(sec)
			late := host.Inject(claimtest.Fault{On: claimtest.Grant, DelayReply: 4 * sec})
			complete(w, q, "a")
			w.want(late.Hits(), 1)
			time.Sleep(retention / 10)
			complete(w, q, "b")
			time.Sleep(retention - sec)
			added, err := q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID("b")))
			w.ok(err)
			w.want(added, false)
		})
	})
	t.Run("sleep", func(t *testing.T) {
		virtually(t, func(w *world) {
			q, host := w.process(queue.Config{Retention: retention, TTL: time.Hour})
			lease := func(id string) int64 {
				w.Helper()
				resp, err := w.server.Admin().Get(w.Context(), w.under("/content/" + id)[0])
				w.ok(err)
				return resp.Kvs[0].Lease
			}
			complete(w, q, "a")
			complete(w, q, "b")
			w.want(lease("b"), lease("a"))
			host.Suspend(retention / 2)
			complete(w, q, "c")
			w.want(lease("c") == lease("a"), false)
		})
	})
}
