package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// A lease that is shorter than the queue's TTL bounds for how long the items of a dead
// process are not visible, also if that process was the keeper.
func TestShortLeaseOfDeadKeeper(t *testing.T) {
	const short = 5 * sec
	cfg := queue.Config{TTL: 30 * sec}
	for name, shorten := range map[string]func(w *world, q *queue.Queue){
		"claimed with it": func(w *world, q *queue.Queue) {
			b, err := q.TryClaim(w.Context(), 1, queue.TTL(short))
			w.ok(err)
			w.want(len(b.Deliveries), 1)
		},
		"by heartbeat": func(w *world, q *queue.Queue) {
			_, err := w.claim(q).Heartbeat(w.Context(), short)
			w.ok(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, late := range []time.Duration{0, short + 2*sec} { // when the other begins
				virtually(t, func(w *world) {
					victim, host := w.process(cfg)
					w.enqueue(victim, "a")
					shorten(w, victim)
					time.Sleep(sec) // it is the keeper
					q := w.queue(cfg)
					if late == 0 {
						w.want(len(w.tryClaim(q, 1)), 0)
						time.Sleep(sec)
					}
					host.Kill()
					begin := time.Now()
					time.Sleep(late)
					b, err := q.Claim(w.Context(), 1)
					w.ok(err)
					w.want(ids(b.Deliveries), "a")
					w.want(b.Deliveries[0].Attempt(), 2)
					if d := time.Since(begin); d > max(short, late)+sec {
						t.Errorf("recovered after %v", d)
					}
				})
			}
		})
	}
}

// While the keeper lives a death costs the other processes no request.
func TestDeathCostsOthersNothing(t *testing.T) {
	virtually(t, func(w *world) {
		cfg := queue.Config{TTL: time.Minute} // no renewal comes in between
		keeper := w.queue(cfg)
		w.want(len(w.tryClaim(keeper, 1)), 0)
		time.Sleep(sec)
		var others []*claimtest.Host
		for range 5 {
			q, host := w.process(cfg)
			w.want(len(w.tryClaim(q, 1)), 0)
			others = append(others, host)
		}
		victim, host := w.process(cfg)
		for _, id := range []string{"a", "b", "c"} {
			w.enqueue(victim, id)
		}
		b, err := victim.TryClaim(w.Context(), 3, queue.TTL(5*sec))
		w.ok(err)
		w.want(len(b.Deliveries), 3)
		time.Sleep(4 * sec)
		host.Kill()
		begin := time.Now()
		time.Sleep(8 * sec)
		w.want(w.look(keeper, "a").Where, queue.Ready)
		for _, host := range others {
			for _, at := range host.Sent(claimtest.Other) {
				if at.After(begin) {
					t.Errorf("a request after %v", at.Sub(begin))
				}
			}
		}
	})
}

// A process that lives for one call, as one that a timer starts, gets the items of a dead worker
// by its first call.
func TestFirstClaimAfterDeath(t *testing.T) {
	for name, claim := range map[string]func(w *world, q *queue.Queue) (queue.Batch, error){
		"TryClaim": func(w *world, q *queue.Queue) (queue.Batch, error) { return q.TryClaim(w.Context(), 1) },
		"Claim for a moment": func(w *world, q *queue.Queue) (queue.Batch, error) {
			ctx, cancel := context.WithTimeout(w.Context(), 40*time.Millisecond)
			defer cancel()
			return q.Claim(ctx, 1)
		},
	} {
		for bounds, cfg := range map[string]queue.Config{"": {}, " with one slot": {MaxTaken: 1}} {
			t.Run(name+bounds, func(t *testing.T) {
				virtually(t, func(w *world) {
					victim, host := w.process(cfg)
					w.enqueue(victim, "a")
					w.enqueue(victim, "b")
					w.want(len(w.tryClaim(victim, 2)), 2-min(1, cfg.MaxTaken))
					host.Kill()
					time.Sleep(ttl + sec)
					q := w.queue(cfg)
					b, err := claim(w, q)
					w.ok(err)
					w.want(len(b.Deliveries), 1)
					w.ok(q.Close(w.Context()))
				})
			})
		}
	}
}

// While the workers live, a call that finds nothing costs one request more, and says how many
// items they have.
func TestTryClaimWhileOthersWork(t *testing.T) {
	virtually(t, func(w *world) {
		worker := w.queue(queue.Config{})
		w.enqueue(worker, "a")
		q, host := w.process(queue.Config{})
		w.want(len(w.tryClaim(q, 1)), 1)
		time.Sleep(sec)
		sent := len(host.Sent(claimtest.Every))
		b, err := q.TryClaim(w.Context(), 1)
		w.ok(err)
		w.want(len(b.Deliveries), 0)
		w.want(b.Taken, 1)
		w.want(len(host.Sent(claimtest.Every))-sent, 2)
	})
}
