package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"google.golang.org/grpc/codes"
)

// got is what a claim returned, and when.
type got struct {
	ids string
	at  time.Time
}

// claims claims n items, waiting for them.
func (w *world) claims(q *queue.Queue, n int) <-chan got {
	out := make(chan got, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Hour)
		defer cancel()
		b, err := q.Claim(ctx, n)
		if err != nil && !errors.Is(err, etcdclaims.ErrClosed) {
			w.Error(err)
		}
		out <- got{ids(b.Deliveries), time.Now()}
	}()
	return out
}

// wantAt fails the test unless a claim got the items soon after an instant.
func (w *world) wantAt(is got, ids string, at time.Time) {
	w.Helper()
	if late := is.at.Sub(at); is.ids != ids || late < 0 || late > 100*time.Millisecond {
		w.Errorf("got %q, %v after the end of the pause; want %q at once", is.ids, late, ids)
	}
}

// A pause ends by itself, and claimers that wait get the items at that instant, in their order.
func TestPauseEndsByItself(t *testing.T) {
	virtually(t, func(w *world) {
		q, p := w.queue(queue.Config{}), w.queue(queue.Config{})
		stop := w.events(q)
		end := time.Now().Add(2 * time.Minute)
		w.ok(q.Pause(w.Context(), "INC-311", queue.For(2*time.Minute)))
		claimed := w.claims(p, 5)
		for _, id := range []string{"a", "b", "c"} {
			w.enqueue(q, id)
			time.Sleep(sec)
		}
		w.ok(q.SetPriority(w.Context(), "c", 1))
		st, err := q.Stats(w.Context())
		w.ok(err)
		w.want(st.Paused.Why, "INC-311")
		w.want(st.Paused.Until.Equal(end), true)
		b, err := p.TryClaim(w.Context(), 1)
		w.ok(err)
		w.want(b.Paused, true)
		time.Sleep(time.Until(end) - time.Millisecond)
		w.want(len(claimed), 0)
		w.wantAt(<-claimed, "c a b", end)
		w.want(len(w.under("paused")), 0)
		w.wantErr(q.Resume(w.Context()), queue.ErrUnchanged)
		time.Sleep(sec)
		for _, e := range stop() {
			if e.Kind == "paused" && !e.Until.Equal(end) || e.Kind == "resumed" && e.Revision == 0 {
				t.Errorf("%+v", e)
			}
		}
	})
}

// Whichever of the processes that wait is dead, the others get the items at the end of a pause. Each item
// goes to one of them.
func TestPauseEndsForMany(t *testing.T) {
	for dead := range 3 {
		virtually(t, func(w *world) {
			q := w.queue(queue.Config{})
			end := time.Now().Add(2 * time.Minute)
			w.ok(q.Pause(w.Context(), "", queue.For(2*time.Minute)))
			for _, id := range []string{"a", "b"} {
				w.enqueue(q, id)
			}
			var all []<-chan got
			for i := range 3 {
				p, host := w.process(queue.Config{})
				if claimed := w.claims(p, 1); i != dead {
					all = append(all, claimed)
				} else {
					time.Sleep(sec)
					host.Cut()
				}
			}
			first, second := <-all[0], <-all[1]
			if both := first.ids + second.ids; both != "ab" && both != "ba" {
				t.Errorf("%v, %v", first, second)
			}
			for _, is := range []got{first, second} {
				w.wantAt(is, is.ids, end)
			}
		})
	}
}

// A pause that ends by itself is replaced by another, of which claimers that wait learn. One that lasts
// until Resume is not replaced.
func TestPauseAgain(t *testing.T) {
	virtually(t, func(w *world) {
		q, p := w.queue(queue.Config{}), w.queue(queue.Config{})
		w.enqueue(q, "a")
		w.ok(q.Pause(w.Context(), "first", queue.For(2*time.Minute)))
		claimed := w.claims(p, 1)
		time.Sleep(time.Minute)
		w.ok(q.Pause(w.Context(), "longer", queue.For(10*time.Minute)))
		time.Sleep(5 * time.Minute)
		w.want(len(claimed), 0)
		end := time.Now().Add(3 * sec)
		w.ok(q.Pause(w.Context(), "not as long", queue.For(3*sec)))
		w.wantAt(<-claimed, "a", end)

		w.enqueue(q, "b")
		w.ok(q.Pause(w.Context(), "some time", queue.For(time.Minute)))
		claimed = w.claims(p, 1)
		w.ok(q.Pause(w.Context(), "until resumed"))
		w.wantErr(q.Pause(w.Context(), "again"), queue.ErrUnchanged)
		w.wantErr(q.Pause(w.Context(), "again", queue.For(sec)), queue.ErrUnchanged)
		time.Sleep(time.Hour)
		st, err := q.Stats(w.Context())
		w.ok(err)
		w.want(st.Paused.Why, "until resumed")
		w.want(st.Paused.Until.IsZero(), true)
		w.want(len(claimed), 0)
		end = time.Now()
		w.ok(q.Resume(w.Context()))
		w.wantAt(<-claimed, "b", end)
	})
}

// Without a claimer nothing ends a pause, and it counts as none all the same.
func TestPauseEndsWithoutClaimer(t *testing.T) {
	for name, then := range map[string]func(w *world, q *queue.Queue){
		"claimed": func(w *world, q *queue.Queue) { w.want(ids(w.tryClaim(q, 2)), "a") },
		"resumed": func(w *world, q *queue.Queue) { w.ok(q.Resume(w.Context())) },
		"paused again": func(w *world, q *queue.Queue) {
			w.ok(q.Pause(w.Context(), "again", queue.For(time.Minute)))
			st, err := q.Stats(w.Context())
			w.ok(err)
			w.want(st.Paused.Why, "again")
			time.Sleep(time.Minute)
			w.want(ids(w.tryClaim(q, 2)), "a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				q := w.queue(queue.Config{})
				w.enqueue(q, "a")
				w.ok(q.Pause(w.Context(), "", queue.For(time.Minute)))
				time.Sleep(time.Hour)
				w.want(len(w.under("paused")), 1)
				st, err := q.Stats(w.Context())
				w.ok(err)
				w.want(st.Paused.At.IsZero(), true)
				then(w, q)
				w.want(len(w.under("paused")), 0)
			})
		})
	}
}

// Whatever becomes of the request that ends a pause, the items are claimed once it is over. If a person
// prolongs it at that instant, it lasts.
func TestPauseEndsUnderFaults(t *testing.T) {
	for name, fault := range map[string]claimtest.Fault{
		"request lost": {LoseRequest: true},
		"reply lost":   {LoseReply: true},
		"unavailable":  {LoseReply: true, Code: codes.Unavailable},
		"late":         {DelayRequest: sec},
		"told late":    {DelayReply: sec},
	} {
		for _, prolonged := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", prolonged), func(t *testing.T) {
				virtually(t, func(w *world) {
					q := w.queue(queue.Config{})
					p, host := w.process(queue.Config{})
					w.enqueue(q, "a")
					end := time.Now().Add(time.Minute)
					w.ok(q.Pause(w.Context(), "", queue.For(time.Minute)))
					claimed := w.claims(p, 1)
					time.Sleep(time.Until(end) - sec/2)
					fault.On = claimtest.Other
					hit := host.Inject(fault)
					time.Sleep(sec / 2)
					first := end
					if prolonged {
						end = time.Now().Add(time.Minute)
						w.ok(q.Pause(w.Context(), "", queue.For(time.Minute)))
					}
					is := <-claimed
					before := prolonged && !fault.LoseRequest && fault.DelayRequest == 0 && is.at.Sub(first) < sec/2 // it came first
					if is.ids != "a" || is.at.Before(end) && !before || is.at.After(end.Add(10*sec)) {
						t.Errorf("%v; the pause was until %v", is, end)
					}
					w.want(hit.Hits(), 1)
				})
			})
		}
	}
}

// Pause whose reply is lost is carried out once, whether or not it replaces another pause.
func TestPauseRepliesLost(t *testing.T) {
	for _, before := range []bool{false, true} {
		for name, fault := range map[string]claimtest.Fault{"reply": {LoseReply: true}, "request": {LoseRequest: true}} {
			for skip := range 2 {
				t.Run(fmt.Sprint(name, " ", before, " ", skip), func(t *testing.T) {
					virtually(t, func(w *world) {
						q, host := w.process(queue.Config{})
						w.enqueue(q, "a")
						if before {
							w.ok(w.queue(queue.Config{}).Pause(w.Context(), "first", queue.For(time.Minute)))
						}
						fault.On, fault.Skip, fault.Code = claimtest.Other, skip, codes.Unavailable
						host.Inject(fault)
						end := time.Now().Add(time.Hour)
						w.ok(q.Pause(w.Context(), "mine", queue.For(time.Hour)))
						host.RemoveFaults()
						st, err := q.Stats(w.Context())
						w.ok(err)
						w.want(st.Paused.Why, "mine")
						w.want(st.Paused.Until.Equal(end), true)
						w.ok(q.Resume(w.Context()))
						w.want(ids(w.tryClaim(q, 1)), "a")
					})
				})
			}
		}
	}
}

// Each process decides by its own clock whether a pause is over, also after that was stepped.
func TestPauseAndClocks(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		slow, host := w.process(queue.Config{})
		w.enqueue(q, "a")
		end := time.Now().Add(2 * time.Minute)
		w.ok(q.Pause(w.Context(), "", queue.For(2*time.Minute)))
		claimed := w.claims(slow, 1)
		time.Sleep(time.Minute)
		host.StepClock(-10 * time.Minute)
		time.Sleep(5 * time.Minute)
		w.want(len(claimed), 0)
		w.want(len(w.under("paused")), 1)
		host.StepClock(10 * time.Minute)
		back := time.Now()
		if is := <-claimed; is.ids != "a" || is.at.Before(end) || is.at.Sub(back) > 11*sec { // it looks now and then
			t.Errorf("%v", is)
		}
		fast, host := w.process(queue.Config{})
		w.enqueue(q, "b")
		w.ok(q.Pause(w.Context(), "", queue.For(time.Minute)))
		host.StepClock(time.Hour)
		w.want(ids(w.tryClaim(fast, 1)), "b")
	})
}

// No pause has a length that nobody means, and no request is sent for one.
func TestPauseForTooLong(t *testing.T) {
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		sent := host.Inject(claimtest.Fault{Times: -1, DelayRequest: time.Millisecond})
		for _, d := range []time.Duration{0, -1, -time.Hour, 366*24*time.Hour + 1, math.MaxInt64, math.MinInt64} {
			err := q.Pause(w.Context(), "", queue.For(d))
			if err == nil || err.Error() != fmt.Sprintf(`pause: queue "q": for %v: want more than 0s and at most 8784h0m0s`, d) {
				t.Errorf("%v: %v", d, err)
			}
		}
		w.want(sent.Hits(), 0)
		host.RemoveFaults()
	})
}

// A pause is not taken for done because the one that it was to replace has ended meanwhile.
func TestPauseWhoseRequestIsLostAsAnotherEnds(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q, host := w.process(queue.Config{})
		other, p := w.queue(queue.Config{}), w.queue(queue.Config{})
		w.enqueue(q, "a")
		end := time.Now().Add(time.Minute)
		w.ok(other.Pause(w.Context(), "first", queue.For(time.Minute)))
		claimed := w.claims(p, 1)
		time.Sleep(time.Until(end) - time.Millisecond)
		host.Inject(claimtest.Fault{On: claimtest.Other, Skip: 1, LoseRequest: true})
		w.ok(q.Pause(w.Context(), "mine", queue.For(time.Hour)))
		<-claimed
		st, err := q.Stats(w.Context())
		w.ok(err)
		w.want(st.Paused.Why, "mine")
	})
}

// Pause ignores a nil option.
func TestPauseWithNilOption(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		w.ok(q.Pause(w.Context(), "", nil))
		w.ok(q.Resume(w.Context()))
	})
}
