package queue_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// Of two holders of one handle that call the same verb, and one of which loses its
// request, that one is not told that it was done: the other one did it, with other
// operations.
func TestSameVerbOfTwoHolders(t *testing.T) {
	for name, v := range verbs {
		for variant, cfg := range map[string]queue.Config{"": {}, "/not remembered": {Retention: -1}, "/no id": {}} {
			if variant != "" && name != "complete" {
				continue
			}
			for _, loser := range []string{"the adopted lease loses", "the first lease loses", "of two adopted leases one loses"} {
				t.Run(name+variant+"/"+loser, func(t *testing.T) {
					t.Parallel()
					testetcd.Sample(t)
					virtually(t, func(w *world) {
						cfg.TTL = 30 * sec
						first, firstHost := w.process(cfg)
						second, secondHost := w.process(cfg)
						third := w.queue(cfg)
						for _, q := range []*queue.Queue{first, second, third} { // sessions of both durations
							_, err := q.Enqueue(w.Context(), queue.NewItem(nil))
							w.ok(err)
							l := w.claim(q)
							_, err = l.Heartbeat(w.Context(), time.Minute)
							w.ok(err)
							w.ok(l.Complete(w.Context()))
						}
						it := queue.NewItem(nil, queue.ID("a"))
						if variant == "/no id" {
							it = queue.NewItem(nil)
						}
						_, err := first.Enqueue(w.Context(), it)
						w.ok(err)
						l := w.claim(first)
						adopted, err := second.Adopt(w.Context(), l.Handle())
						w.ok(err)
						another, err := third.Adopt(w.Context(), l.Handle())
						w.ok(err)
						loses, wins, host := adopted, l, secondHost
						switch loser {
						case "the first lease loses":
							loses, wins, host = l, adopted, firstHost
						case "of two adopted leases one loses":
							wins = another
						}
						injected := host.Inject(claimtest.Fault{On: claimtest.Other, LoseRequest: true, Err: context.DeadlineExceeded, Saw: func(any) {
							w.ok(v.do(context.Background(), wins))
						}})
						err = v.do(w.Context(), loses)
						w.want(injected.Hits(), 1)
						if err == nil {
							t.Fatal("two were told that they did it")
						}
						if name == "complete" {
							w.wantErr(err, queue.ErrCompleted)
						} else {
							w.wantErr(err, queue.ErrSuperseded)
						}
						w.want(v.fence, wins.Err() == nil)
					})
				})
			}
		}
	}
}

// An adopted lease whose reply was lost is told that its verb was carried out.
func TestAdoptedVerbUnderFaults(t *testing.T) {
	for name, v := range verbs {
		for variant, cfg := range map[string]queue.Config{"": {}, "/not remembered": {Retention: -1}} {
			t.Run(name+variant, func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					cfg.TTL = 30 * sec
					q, _ := w.process(cfg)
					p, host := w.process(cfg)
					w.enqueue(p, "warm")
					warm := w.claim(p)
					_, err := warm.Heartbeat(w.Context(), time.Minute)
					w.ok(err)
					w.enqueue(q, "a")
					l := w.claim(q)
					adopted, err := p.Adopt(w.Context(), l.Handle())
					w.ok(err)
					injected := host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true, Times: 2, Err: context.DeadlineExceeded})
					w.ok(v.do(w.Context(), adopted))
					w.want(injected.Hits() > 0, true)
					if !v.fence {
						w.wantErr(adopted.Err(), etcdclaims.ErrReleased)
					}
					if err := l.Complete(w.Context()); !errors.Is(err, etcdclaims.ErrLost) {
						t.Errorf("the first lease can still complete: %v", err)
					}
				})
			})
		}
	}
}

// A process learns that another one has completed or moved its item by the handle, and keeps the
// delivery no longer. A delivery that it has still, and one with a verb of unknown outcome, stay.
func TestHandedOverItemsAreForgotten(t *testing.T) {
	virtually(t, func(w *world) {
		first, host := w.process(queue.Config{TTL: 30 * sec})
		second := w.queue(queue.Config{TTL: 30 * sec})
		for _, id := range []string{"completed", "moved", "stays", "unknown"} {
			w.enqueue(first, id)
		}
		had := w.tryClaim(first, 4)
		for i, do := range []func(*queue.Delivery) error{
			func(l *queue.Delivery) error { return l.Complete(w.Context()) },
			func(l *queue.Delivery) error { _, err := l.Heartbeat(w.Context(), 0); return err },
		} {
			l, err := second.Adopt(w.Context(), had[i].Handle())
			w.ok(err)
			w.ok(do(l))
		}
		synctest.Wait() // the keeper has ended its first round, whose requests are of the kind of Complete's
		host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true})
		ctx, cancel := context.WithTimeout(w.Context(), sec)
		defer cancel()
		w.wantErr(had[3].Complete(ctx), etcdclaims.ErrUnknown)
		time.Sleep(2 * time.Minute)
		w.wantErr(had[0].Err(), queue.ErrCompleted)
		w.wantErr(had[1].Err(), queue.ErrSuperseded)
		for i, kept := range []bool{false, false, true, true} {
			w.want(had[i].Context().Err() == nil, kept)
			_, ok := first.Delivery(had[i].ID())
			w.want(ok, kept)
		}
		w.ok(had[2].Check())
		w.ok(had[3].Complete(w.Context()))
	})
}

// Leases that a process adopts and drops without a verb are not kept.
func TestDroppedLeasesAreFreed(t *testing.T) {
	virtually(t, func(w *world) {
		first, second := w.queue(queue.Config{}), w.queue(queue.Config{})
		w.enqueue(first, "a")
		handle := w.claim(first).Handle()
		adopt := func() *queue.Delivery {
			l, err := second.Adopt(w.Context(), handle)
			w.ok(err)
			return l
		}
		kept := adopt()
		var dropped []weak.Pointer[queue.Delivery]
		for range 20 {
			dropped = append(dropped, weak.Make(adopt()))
		}
		runtime.GC()
		left := 0
		for _, l := range dropped {
			if l.Value() != nil {
				left++
			}
		}
		if left > 1 { // the last one may still be on the stack
			t.Errorf("%d of %d leases are kept", left, len(dropped))
		}
		w.ok(kept.Err())
		w.ok(second.Close(w.Context()))
		<-kept.Done()
		w.wantErr(kept.Err(), etcdclaims.ErrClosed)
	})
}

// Heartbeat of an adopted lease returns ErrExpired, at once, if the session of the lease has
// ended and nobody has recovered the item.
func TestHeartbeatAfterSession(t *testing.T) {
	virtually(t, func(w *world) {
		p := w.queue(queue.Config{})
		q, host := w.process(queue.Config{})
		w.enqueue(p, "a")
		l := w.claim(q)
		adopted, err := p.Adopt(w.Context(), l.Handle())
		w.ok(err)
		host.Cut()
		time.Sleep(30 * sec)
		begun := time.Now()
		_, err = adopted.Heartbeat(w.Context(), 0)
		w.wantErr(err, queue.ErrExpired)
		if d := time.Since(begun); d > sec {
			t.Errorf("it took %v", d)
		}
	})
}
