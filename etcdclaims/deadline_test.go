package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
)

// With renewals cut, the context ends at D_soft and the claim at D, both
// counted from before the last renewal was sent, and the server deletes later.
func TestDeadlineIsExact(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{5 * sec, 15 * sec, 60 * sec} {
		for _, renewals := range []int{0, 1, 4} {
			virtualCase(t, fmt.Sprintf("%v after %d", ttl, renewals), func(t *testing.T, w *world) {
				soft, hard := timing(ttl)
				var hooked *etcdclaims.LostError
				c, host := w.client(etcdclaims.Config{TTL: ttl, Hooks: onLoss(func(l *etcdclaims.LostError) { hooked = l })})
				t0 := time.Now()
				cl := tryClaim(t, c, "k")
				if d := time.Since(t0); d != 0 {
					t.Fatalf("acquiring took %v of virtual time", d)
				}
				gone := w.deletion(w.Own("k"))
				for n := range renewals {
					t0 = t0.Add(ttl / 3)
					time.Sleep(time.Until(t0) + time.Millisecond)
					synctest.Wait()
					if sent := host.Sent(claimtest.KeepAlive); len(sent) != n+1 || !near(sent[n].Sub(t0), 0, time.Millisecond) {
						t.Fatalf("renewals at %v, want the last at %v", sent, t0)
					} else {
						t0 = sent[n]
					}
				}
				host.Cut()
				if d := cl.Deadline().Sub(t0); !near(d, hard, time.Millisecond) {
					t.Errorf("Deadline is t0+%v, want %v", d, hard)
				}
				e := follow(cl)
				time.Sleep(time.Until(t0.Add(soft - time.Millisecond)))
				synctest.Wait()
				if cl.Context().Err() != nil || cl.Check() != nil {
					t.Errorf("1 ms before D_soft: %v, %v", cl.Context().Err(), cl.Check())
				}
				time.Sleep(time.Until(t0.Add(hard - time.Millisecond)))
				synctest.Wait()
				if cl.Context().Err() == nil || cl.Check() != nil || cl.Err() != nil || cl.Remaining() != time.Millisecond {
					t.Errorf("1 ms before D: %v, %v, %v, %v", cl.Context().Err(), cl.Check(), cl.Err(), cl.Remaining())
				}
				lossOf(t, context.Cause(cl.Context()), etcdclaims.ReasonExpired)
				time.Sleep(time.Millisecond)
				synctest.Wait()
				lossOf(t, cl.Check(), etcdclaims.ReasonExpired)
				lossOf(t, cl.Err(), etcdclaims.ReasonExpired)
				if hooked == nil || hooked.Reason != etcdclaims.ReasonExpired || cl.Remaining() != 0 {
					t.Errorf("hook told %v, remaining %v", hooked, cl.Remaining())
				}
				if d := (<-e.soft).Sub(t0); !near(d, soft, time.Millisecond) {
					t.Errorf("context ended at t0+%v, want %v", d, soft)
				}
				if d := (<-e.done).Sub(t0); !near(d, hard, time.Millisecond) {
					t.Errorf("claim ended at t0+%v, want %v", d, hard)
				}
				if d := (<-gone).Sub(t0); d < ttl || d > ttl+sec {
					t.Errorf("server deleted at t0+%v, TTL %v", d, ttl)
				}
			})
		}
	}
}

// The local stop comes before the server's deletion, however late replies are.
func TestDeadlineNeverAfterServersDeletion(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{5 * sec, 15 * sec} {
		for _, delay := range []time.Duration{0, 300 * time.Millisecond, 800 * time.Millisecond, 1500 * time.Millisecond, 2 * sec, 2490 * time.Millisecond, 3 * sec} {
			for _, up := range []bool{false, true} {
				virtualCase(t, fmt.Sprintf("TTL %v delay %v up %v", ttl, delay, up), func(t *testing.T, w *world) {
					_, hard := timing(ttl)
					c, host := w.client(etcdclaims.Config{TTL: ttl})
					t0 := time.Now()
					cl := tryClaim(t, c, "k")
					gone := w.deletion(w.Own("k"))
					e := follow(cl)
					r := claimtest.Fault{On: claimtest.KeepAlive, Times: -1, DelayReply: delay}
					if up {
						r.DelayRequest, r.DelayReply = delay, 0
					}
					host.Inject(r)
					v := claimtest.Fault{On: claimtest.Verify, Times: -1, DelayReply: delay / 2}
					host.Inject(v)
					time.Sleep(10 * ttl / 3)
					survived := cl.Err() == nil
					if want := delay < ttl/6 && delay/2 < max(ttl/6, sec); survived != want {
						t.Errorf("survived: %v, want %v", survived, want)
					}
					host.Cut()
					stop, del := <-e.done, <-gone
					slack := del.Sub(stop)
					t.Logf("slack %v", slack)
					if slack < max(500*time.Millisecond, ttl/10) {
						t.Errorf("the server deleted %v after the local stop", slack)
					}
					// The stop belongs to a t0 at which something was sent.
					ok := near(stop.Sub(t0), hard, time.Millisecond)
					for _, s := range host.Sent(claimtest.KeepAlive) {
						ok = ok || near(stop.Sub(s), hard, time.Millisecond)
					}
					if !ok {
						t.Errorf("stopped at %v after acquiring, which no renewal accounts for", stop.Sub(t0))
					}
				})
			}
		}
	}
}

// Replies that are late for long leave the claim alive, and extend it from when
// they were asked for only.
func TestDeadlineCountsFromSending(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		const ttl = 15 * sec
		_, hard := timing(ttl)
		c, host := w.client(etcdclaims.Config{TTL: ttl})
		cl := tryClaim(t, c, "k")
		host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, DelayReply: 1500 * time.Millisecond})
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(97 * time.Millisecond) {
			sent := host.Sent(claimtest.KeepAlive)
			if cl.Check() != nil {
				t.Fatalf("lost: %v", cl.Check())
			}
			if len(sent) == 0 {
				continue
			}
			last := sent[len(sent)-1]
			if d := cl.Deadline().Sub(last); d > hard+time.Millisecond {
				t.Fatalf("believes until %v after the last request, D is %v", d, hard)
			}
			// Done by 1.5 s, and not before.
			if age := time.Since(last); age > 1501*time.Millisecond && !near(cl.Deadline().Sub(last), hard, time.Millisecond) {
				t.Fatalf("%v after the last request the deadline is %v after it, want %v", age, cl.Deadline().Sub(last), hard)
			} else if age < 1499*time.Millisecond && near(cl.Deadline().Sub(last), hard, time.Millisecond) {
				t.Fatalf("adopted %v after the request, before the reply", age)
			}
		}
		// A reply later than an attempt may take is nobody's.
		host.RemoveFaults()
		host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, DelayReply: 2600 * time.Millisecond})
		before := cl.Deadline()
		time.Sleep(6 * sec)
		if d := cl.Deadline().Sub(before); d > 5*sec+time.Millisecond {
			t.Errorf("replies that came too late moved the deadline by %v", d)
		}
		host.RemoveFaults()
		time.Sleep(10 * sec)
		if err := cl.Check(); err != nil {
			t.Error(err)
		}
	})
}

// TTL of the reply counts: a server that grants less, or nothing, is believed.
func TestDeadlineFollowsGrantedTTL(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		cl := tryClaim(t, c, "k")
		host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, Edit: func(m any) { m.(*pb.LeaseKeepAliveResponse).TTL = 60 }})
		time.Sleep(5*sec + time.Millisecond)
		_, hard := timing(60 * sec)
		if d := cl.Remaining(); !near(d, hard, 2*time.Millisecond) {
			t.Errorf("granted 60 s, remaining %v, want %v", d, hard)
		}
		host.RemoveFaults()
		host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Edit: func(m any) { m.(*pb.LeaseKeepAliveResponse).TTL = 0 }})
		begin := time.Now()
		<-cl.Done()
		if d := time.Since(begin); d > 21*sec {
			t.Errorf("TTL 0 noticed after %v", d)
		}
		lossOf(t, cl.Err(), etcdclaims.ReasonRevoked)
	})
}

// An attempt that hangs is given up after TTL/6, the next one saves the claim.
func TestRenewalAttemptIsBounded(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{5 * sec, 15 * sec, 60 * sec} {
		for _, what := range []claimtest.Kind{claimtest.KeepAlive, claimtest.Verify} {
			virtualCase(t, ttl.String()+" "+string(what), func(t *testing.T, w *world) {
				c, host := w.client(etcdclaims.Config{TTL: ttl})
				begin := time.Now()
				cl := tryClaim(t, c, "k")
				host.Inject(claimtest.Fault{On: what, LoseRequest: true})
				time.Sleep(ttl)
				sent := host.Sent(what)
				if len(sent) < 2 {
					t.Fatalf("%d attempts", len(sent))
				}
				most := ttl/6 + ttl/120 + min(ttl/60<<1, sec) + 2*time.Millisecond
				if what == claimtest.Verify { // tried again at once, for the same renewal
					most = min(max(ttl/6, sec), 5*sec) + 2*time.Millisecond
				}
				if gap := sent[1].Sub(sent[0]); gap < ttl/6 && what == claimtest.KeepAlive || gap > most {
					t.Errorf("the next attempt came after %v, want %v to %v", gap, ttl/6, most)
				}
				time.Sleep(2 * ttl)
				if err := cl.Check(); err != nil || cl.Context().Err() != nil {
					t.Errorf("after %v: %v, %v", time.Since(begin), err, cl.Context().Err())
				}
				if n := host.MostInFlight(claimtest.KeepAlive); n != 1 {
					t.Errorf("%d renewals in flight at once", n)
				}
			})
		}
	}
}

// clientv3's KeepAliveOnce would ask again without pause while it is answered
// Unavailable or Internal: an outage must not cost a CPU and hammer etcd.
func TestRenewalDoesNotHammerAnEtcdThatRefuses(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.Unavailable, codes.Internal} {
		virtualCase(t, code.String(), func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			tryClaim(t, c, "k")
			time.Sleep(5*sec - time.Millisecond)
			host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, Code: code})
			before := len(host.Sent(claimtest.KeepAlive))
			time.Sleep(5 * sec)
			// Backed off as documented: at least 125 ms apart.
			if n := len(host.Sent(claimtest.KeepAlive)) - before; n == 0 || n > 41 {
				t.Errorf("%d keepalives in 5 s against an etcd that answers %v (and the injector slowed it to 1,000 a second)", n, code)
			}
		})
	}
}

// A machine that slept: Check refuses at once, contexts end within the pulse.
func TestSleepOfTheMachine(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		virtualCase(t, fmt.Sprintf("cut %v", cut), func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			cl := tryClaim(t, c, "k")
			idle := tryClaim(t, c, "idle")
			time.Sleep(1234 * time.Millisecond)
			if cut {
				host.Cut()
			}
			host.Suspend(14 * sec)
			if err := cl.Check(); !errors.Is(err, etcdclaims.ErrLost) {
				t.Errorf("Check right after waking: %v", err)
			}
			lossOf(t, idle.Check(), etcdclaims.ReasonExpired)
		})
	}
	for _, slept := range []time.Duration{11 * sec, 14 * sec} {
		virtualCase(t, fmt.Sprintf("nobody checks, slept %v", slept), func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			cl := tryClaim(t, c, "k")
			e := follow(cl)
			time.Sleep(100 * time.Millisecond)
			host.Cut()
			begin := time.Now()
			host.Suspend(slept)
			if d := (<-e.soft).Sub(begin); d > sec {
				t.Errorf("the context ended after %v", d)
			}
			if d := (<-e.done).Sub(begin); d > max(sec, 13350*time.Millisecond-slept) {
				t.Errorf("the claim ended after %v", d)
			}
			lossOf(t, cl.Err(), etcdclaims.ReasonExpired)
		})
	}
}

// Clocks are compared even while no watch can be opened.
func TestSleepOfTheMachineIsNoticedWithoutAWatch(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, LoseRequest: true})
		cl := tryClaim(t, c, "k")
		e := follow(cl)
		time.Sleep(100 * time.Millisecond)
		host.Cut()
		begin := time.Now()
		host.Suspend(14 * sec)
		if d := (<-e.soft).Sub(begin); d > sec {
			t.Errorf("the context ended %v after waking, the pulse is 1 s", d)
		}
		if d := (<-e.done).Sub(begin); d > sec {
			t.Errorf("the claim ended %v after waking, the pulse is 1 s", d)
		}
	})
}

// A step of the wall clock is doubted until etcd has been asked.
func TestWallClockSteps(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		cl := tryClaim(t, c, "k")
		time.Sleep(2 * sec)
		host.Inject(claimtest.Fault{On: claimtest.KeepAlive, DelayReply: time.Microsecond}) // not before this goroutine waits
		host.StepClock(time.Hour)
		err := cl.Check()
		if !errors.Is(err, etcdclaims.ErrUnknown) || errors.Is(err, etcdclaims.ErrLost) {
			t.Errorf("right after a step forward: %v, want ErrUnknown", err)
		}
		if cl.Remaining() != 0 {
			t.Errorf("remaining %v", cl.Remaining())
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if err := cl.Check(); err != nil || len(host.Sent(claimtest.KeepAlive)) != 1 {
			t.Errorf("after the verification: %v, %d renewals", err, len(host.Sent(claimtest.KeepAlive)))
		}
		host.StepClock(-2 * time.Hour)
		for range 60 {
			time.Sleep(sec)
			if err := cl.Check(); err != nil || cl.Context().Err() != nil {
				t.Fatalf("after a step back: %v, %v", err, cl.Context().Err())
			}
		}
		// With etcd cut off a step forward stays unknown, then expires in time.
		host.Cut()
		sent := host.Sent(claimtest.KeepAlive)
		_, hard := timing(15 * sec)
		host.StepClock(time.Hour)
		d := sent[len(sent)-1].Add(hard)
		time.Sleep(time.Until(d) - time.Millisecond)
		if err := cl.Check(); !errors.Is(err, etcdclaims.ErrUnknown) {
			t.Errorf("cut off: %v, want ErrUnknown", err)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		lossOf(t, cl.Check(), etcdclaims.ReasonExpired)
	})
}

// A claim that the wall clock doubts while etcd confirms it counts neither as owned nor as lost.
func TestOwnsAfterTheWallClockStepped(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		cl := tryClaim(t, c, "k")
		time.Sleep(2 * sec)
		host.StepClock(time.Hour)
		if owns, err := cl.Owns(t.Context()); owns || !errors.Is(err, etcdclaims.ErrUnknown) || cl.Err() != nil {
			t.Errorf("right after the step: %t, %v; lost: %v", owns, err, cl.Err())
		}
		time.Sleep(sec)
		if owns, err := cl.Owns(t.Context()); !owns || err != nil {
			t.Errorf("after the verification: %t, %v", owns, err)
		}
	})
}
