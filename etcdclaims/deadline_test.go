package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
)

// With renewals cut, the context ends at D_soft and the claim at D, both
// counted from before the last renewal was sent, and the server deletes later.
func TestDeadlineIsExact(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{5 * sec, 15 * sec, 60 * sec} {
		for _, renewals := range []int{0, 1, 4} {
			t.Run(fmt.Sprintf("%v after %d", ttl, renewals), func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					soft, hard := timing(ttl)
					var hooked *etcdclaims.LostError
					c, f := w.client(etcdclaims.Config{TTL: ttl, Hooks: etcdclaims.Hooks{Lost: func(l *etcdclaims.LostError) { hooked = l }}})
					t0 := time.Now()
					cl := mustTry(t, c, "k")
					if d := time.Since(t0); d != 0 {
						t.Fatalf("acquiring took %v of virtual time", d)
					}
					gone := w.deletion("own/k")
					for n := range renewals {
						t0 = t0.Add(ttl / 3)
						time.Sleep(time.Until(t0) + time.Millisecond)
						synctest.Wait()
						if sent := f.sent("keepalive"); len(sent) != n+1 || !near(sent[n].Sub(t0), 0, time.Millisecond) {
							t.Fatalf("renewals at %v, want the last at %v", sent, t0)
						} else {
							t0 = sent[n]
						}
					}
					f.cut()
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
				t.Run(fmt.Sprintf("TTL %v delay %v up %v", ttl, delay, up), func(t *testing.T) {
					t.Parallel()
					virtually(t, func(w *world) {
						_, hard := timing(ttl)
						c, f := w.client(etcdclaims.Config{TTL: ttl})
						t0 := time.Now()
						cl := mustTry(t, c, "k")
						gone := w.deletion("own/k")
						e := follow(cl)
						r := &rule{kind: "keepalive", n: -1, after: delay}
						if up {
							r.before, r.after = delay, 0
						}
						f.add(r)
						v := &rule{kind: "verify", n: -1, after: delay / 2}
						f.add(v)
						time.Sleep(10 * ttl / 3)
						survived := cl.Err() == nil
						if want := delay < ttl/6 && delay/2 < max(ttl/6, sec); survived != want {
							t.Errorf("survived: %v, want %v", survived, want)
						}
						f.cut()
						stop, del := <-e.done, <-gone
						slack := del.Sub(stop)
						t.Logf("slack %v", slack)
						if slack < max(500*time.Millisecond, ttl/10) {
							t.Errorf("the server deleted %v after the local stop", slack)
						}
						// The stop belongs to a t0 at which something was sent.
						ok := near(stop.Sub(t0), hard, time.Millisecond)
						for _, s := range f.sent("keepalive") {
							ok = ok || near(stop.Sub(s), hard, time.Millisecond)
						}
						if !ok {
							t.Errorf("stopped at %v after acquiring, which no renewal accounts for", stop.Sub(t0))
						}
					})
				})
			}
		}
	}
}

// Replies that are late for long leave the claim alive, and extend it from when
// they were asked for only.
func TestDeadlineCountsFromSending(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const ttl = 15 * sec
		_, hard := timing(ttl)
		c, f := w.client(etcdclaims.Config{TTL: ttl})
		cl := mustTry(t, c, "k")
		f.add(&rule{kind: "keepalive", n: -1, after: 1500 * time.Millisecond})
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(97 * time.Millisecond) {
			sent := f.sent("keepalive")
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
		f.clear()
		f.add(&rule{kind: "keepalive", n: -1, after: 2600 * time.Millisecond})
		before := cl.Deadline()
		time.Sleep(6 * sec)
		if d := cl.Deadline().Sub(before); d > 5*sec+time.Millisecond {
			t.Errorf("replies that came too late moved the deadline by %v", d)
		}
		f.clear()
		time.Sleep(10 * sec)
		if err := cl.Check(); err != nil {
			t.Error(err)
		}
	})
}

// A renewal counts only with its verification: a lease that answers is not
// ownership.
func TestDeadlineNeedsVerification(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const ttl = 15 * sec
		_, hard := timing(ttl)
		c, f := w.client(etcdclaims.Config{TTL: ttl})
		t0 := time.Now()
		cl := mustTry(t, c, "k")
		e := follow(cl)
		f.add(&rule{kind: "verify", n: -1, code: codes.Unavailable})
		if d := (<-e.done).Sub(t0); !near(d, hard, time.Millisecond) {
			t.Errorf("ended at %v, want %v: keepalives alone must not extend", d, hard)
		}
		lossOf(t, cl.Err(), etcdclaims.ReasonExpired)
	})
}

// TTL of the reply counts: a server that grants less, or nothing, is believed.
func TestDeadlineFollowsGrantedTTL(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		c, f := w.client(etcdclaims.Config{TTL: 15 * sec})
		cl := mustTry(t, c, "k")
		f.add(&rule{kind: "keepalive", n: -1, edit: func(m any) { m.(*pb.LeaseKeepAliveResponse).TTL = 60 }})
		time.Sleep(5*sec + time.Millisecond)
		_, hard := timing(60 * sec)
		if d := cl.Remaining(); !near(d, hard, 2*time.Millisecond) {
			t.Errorf("granted 60 s, remaining %v, want %v", d, hard)
		}
		f.clear()
		f.add(&rule{kind: "keepalive", edit: func(m any) { m.(*pb.LeaseKeepAliveResponse).TTL = 0 }})
		begin := time.Now()
		<-cl.Done()
		if d := time.Since(begin); d > 21*sec {
			t.Errorf("TTL 0 noticed after %v", d)
		}
		lossOf(t, cl.Err(), etcdclaims.ReasonRevoked)
	})
}

// Renewals come each TTL/3, one at a time.
func TestRenewalSchedule(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{5 * sec, 15 * sec, 60 * sec} {
		t.Run(ttl.String(), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				c, f := w.client(etcdclaims.Config{TTL: ttl})
				begin := time.Now()
				cl := mustTry(t, c, "k")
				time.Sleep(ttl*4 + ttl/6)
				sent := f.sent("keepalive")
				if len(sent) != 12 {
					t.Errorf("%d renewals in 4 TTLs, want 12", len(sent))
				}
				for i, s := range sent {
					if want := ttl / 3 * time.Duration(i+1); !near(s.Sub(begin), want, time.Duration(i+1)*time.Millisecond) {
						t.Errorf("renewal %d at %v, want %v", i, s.Sub(begin), want)
					}
				}
				if n := f.inFlightAtMost("keepalive"); n != 1 {
					t.Errorf("%d renewals in flight at once", n)
				}
				if err := cl.Check(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// An attempt that hangs is given up after TTL/6, the next one saves the claim.
func TestRenewalAttemptIsBounded(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{5 * sec, 15 * sec, 60 * sec} {
		for _, what := range []string{"keepalive", "verify"} {
			t.Run(ttl.String()+" "+what, func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					c, f := w.client(etcdclaims.Config{TTL: ttl})
					begin := time.Now()
					cl := mustTry(t, c, "k")
					f.add(&rule{kind: what, dropped: true})
					time.Sleep(ttl)
					sent := f.sent("keepalive")
					if len(sent) < 2 {
						t.Fatalf("%d renewals", len(sent))
					}
					most := ttl/6 + ttl/120 + min(ttl/60<<1, sec) + 2*time.Millisecond
					if what == "verify" {
						most = min(max(ttl/6, sec), 5*sec) + ttl/120 + min(ttl/60<<1, sec) + 2*time.Millisecond
					}
					if gap := sent[1].Sub(sent[0]); gap < ttl/6 && what == "keepalive" || gap > most {
						t.Errorf("the next attempt came after %v, want %v to %v", gap, ttl/6, most)
					}
					time.Sleep(2 * ttl)
					if err := cl.Check(); err != nil || cl.Context().Err() != nil {
						t.Errorf("after %v: %v, %v", time.Since(begin), err, cl.Context().Err())
					}
					if n := f.inFlightAtMost("keepalive"); n != 1 {
						t.Errorf("%d renewals in flight at once", n)
					}
				})
			})
		}
	}
}

// clientv3's KeepAliveOnce would ask again without pause while it is answered
// Unavailable or Internal: an outage must not cost a CPU and hammer etcd.
func TestRenewalDoesNotHammerAnEtcdThatRefuses(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.Unavailable, codes.Internal} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				c, f := w.client(etcdclaims.Config{TTL: 15 * sec})
				mustTry(t, c, "k")
				time.Sleep(5*sec - time.Millisecond)
				f.add(&rule{kind: "keepalive", n: -1, code: code})
				before := f.count("keepalive")
				time.Sleep(5 * sec)
				// Backed off as documented: at least 125 ms apart.
				if n := f.count("keepalive") - before; n > 41 {
					t.Errorf("%d keepalives in 5 s against an etcd that answers %v (and the injector slowed it to 1,000 a second)", n, code)
				}
			})
		})
	}
}

// A machine that slept: Check refuses at once, contexts end within the pulse.
func TestSleepOfTheMachine(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut %v", cut), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				c, f := w.client(etcdclaims.Config{TTL: 15 * sec})
				cl := mustTry(t, c, "k")
				idle := mustTry(t, c, "idle")
				time.Sleep(1234 * time.Millisecond)
				if cut {
					f.cut()
				}
				w.boot.Add(int64(14 * sec))
				if err := cl.Check(); !errors.Is(err, etcdclaims.ErrLost) {
					t.Errorf("Check right after waking: %v", err)
				}
				lossOf(t, idle.Check(), etcdclaims.ReasonExpired)
			})
		})
	}
	for _, slept := range []time.Duration{11 * sec, 14 * sec} {
		t.Run(fmt.Sprintf("nobody checks, slept %v", slept), func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				c, f := w.client(etcdclaims.Config{TTL: 15 * sec})
				cl := mustTry(t, c, "k")
				e := follow(cl)
				time.Sleep(100 * time.Millisecond)
				f.cut()
				begin := time.Now()
				w.boot.Add(int64(slept))
				if d := (<-e.soft).Sub(begin); d > sec {
					t.Errorf("the context ended after %v", d)
				}
				if d := (<-e.done).Sub(begin); d > max(sec, 13350*time.Millisecond-slept) {
					t.Errorf("the claim ended after %v", d)
				}
				lossOf(t, cl.Err(), etcdclaims.ReasonExpired)
			})
		})
	}
}

// Clocks are compared even while no watch can be opened.
func TestSleepOfTheMachineIsNoticedWithoutAWatch(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		c, f := w.client(etcdclaims.Config{TTL: 15 * sec})
		f.add(&rule{kind: "watch", n: -1, dropped: true})
		cl := mustTry(t, c, "k")
		e := follow(cl)
		time.Sleep(100 * time.Millisecond)
		f.cut()
		begin := time.Now()
		w.boot.Add(int64(14 * sec))
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
	virtually(t, func(w *world) {
		c, f := w.client(etcdclaims.Config{TTL: 15 * sec})
		cl := mustTry(t, c, "k")
		time.Sleep(2 * sec)
		w.step.Add(int64(time.Hour))
		err := cl.Check()
		if !errors.Is(err, etcdclaims.ErrUnknown) || errors.Is(err, etcdclaims.ErrLost) {
			t.Errorf("right after a step forward: %v, want ErrUnknown", err)
		}
		if cl.Remaining() != 0 {
			t.Errorf("remaining %v", cl.Remaining())
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if err := cl.Check(); err != nil || f.count("keepalive") != 1 {
			t.Errorf("after the verification: %v, %d renewals", err, f.count("keepalive"))
		}
		w.step.Add(int64(-2 * time.Hour))
		for range 60 {
			time.Sleep(sec)
			if err := cl.Check(); err != nil || cl.Context().Err() != nil {
				t.Fatalf("after a step back: %v, %v", err, cl.Context().Err())
			}
		}
		// With etcd cut off a step forward stays unknown, then expires in time.
		f.cut()
		sent := f.sent("keepalive")
		_, hard := timing(15 * sec)
		w.step.Add(int64(time.Hour))
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

// Acquiring right after the wall clock stepped works: the lease that is held
// may be doubted, a new one is not.
func TestWallClockStepDoesNotBlockAcquiring(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		c, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
		mustTry(t, c, "k")
		w.step.Add(int64(time.Hour))
		cl := mustTry(t, c, "k2")
		if err := cl.Check(); err != nil {
			t.Error(err)
		}
	})
}
