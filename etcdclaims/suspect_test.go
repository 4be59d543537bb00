package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testetcd/deafness"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

const ms = time.Millisecond

// suspicions collects what Hooks.Suspected is told.
func suspicions() (hooks etcdclaims.Hooks, told chan suspicion) {
	told = make(chan suspicion, 100)
	return etcdclaims.Hooks{Suspected: func(instance string, claims int, wrong bool) { told <- suspicion{instance, claims, wrong} }}, told
}

type suspicion struct {
	instance string
	claims   int
	wrong    bool
}

// judged checks what a client has counted.
func judged(tb testing.TB, c *etcdclaims.Client, suspected, wrongly int64) {
	tb.Helper()
	if st := c.Stats(); st.Suspected != suspected || st.SuspectedWrongly != wrongly {
		tb.Errorf("%d suspected, %d of them wrongly; want %d and %d", st.Suspected, st.SuspectedWrongly, suspected, wrongly)
	}
}

// waitingFor lets a client wait for keys, and returns when it has asked for a while.
func (w *world) waitingFor(c *etcdclaims.Client, keys ...string) []<-chan claimed {
	w.Helper()
	done := make([]<-chan claimed, len(keys))
	for i, key := range keys {
		done[i] = acquiring(context.Background(), c, key, etcdclaims.Suspectable())
	}
	time.Sleep(2 * sec)
	return done
}

// The keys of a dead process have their next owners in half a second, whatever their
// number, by one question.
func TestSuspectTheDead(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, testetcd.Fewer(1000, 50)} {
		for phase := range 3 {
			if n > 1 && phase > 0 {
				continue
			}
			virtualCase(t, fmt.Sprintf("%d keys, phase %d", n, phase), func(t *testing.T, w *world) {
				a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				hooks, told := suspicions()
				b, bhost := w.client(etcdclaims.Config{TTL: 15 * sec, Hooks: hooks})
				keys := make([]string, n)
				fences := make([]int64, n)
				for i := range keys {
					keys[i] = fmt.Sprintf("k%d", i)
					fences[i] = tryClaim(t, a, keys[i], etcdclaims.Suspectable()).Fence()
				}
				done := w.waitingFor(b, keys...)
				before := len(bhost.Sent(steps.Ask))
				time.Sleep(5*sec + time.Duration(phase)*17*ms)
				if asked := len(bhost.Sent(steps.Ask)) - before; asked < 75 || asked > 105 {
					t.Errorf("%d questions in 5 s", asked)
				}
				host.Kill()
				killed := time.Now()
				for i := range done {
					r := <-done[i]
					noErr(t, r.err)
					if took := r.at.Sub(killed); took > 520*ms || took < 390*ms {
						t.Errorf("%s: taken after %v", keys[i], took)
					}
					if r.cl.Fence() <= fences[i] {
						t.Errorf("fence %d after %d", r.cl.Fence(), fences[i])
					}
				}
				if asks := w.Count("/ask/"); asks != 1 {
					t.Errorf("%d questions stand", asks)
				}
				s := <-told
				if d := time.Since(killed); s.wrong || s.claims != n || s.instance != a.Instance() || d > 17*sec {
					t.Errorf("told of %+v after %v", s, d)
				}
				judged(t, b, int64(n), 0)
				time.Sleep(sec)
				w.CloseClean(b)
			})
		}
	}
}

// A holder that answers keeps its key, however long others wait.
func TestSuspectNobodyAlive(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, b, c := w.peer(), w.peer(), w.peer()
		held := tryClaim(t, a, "k", etcdclaims.Suspectable())
		first := w.waitingFor(b, "k")
		second := w.waitingFor(c, "k")
		lasts := testetcd.Fewer(time.Minute, 10*sec)
		if testetcd.Long() {
			lasts = time.Hour
		}
		time.Sleep(lasts)
		noErr(t, held.Check())
		release(t, held)
		cl := w.within(sec, first[0])
		time.Sleep(10 * sec)
		noErr(t, cl.Check())
		release(t, cl)
		release(t, w.within(sec, second[0]))
		for _, c := range []*etcdclaims.Client{a, b, c} {
			judged(t, c, 0, 0)
		}
		w.CloseClean(a, b, c)
		w.NoLeases()
	})
}

// Nobody is asked while nobody waits, nor by a caller that is not the first in line, nor
// unless both sides have the option.
func TestSuspectAsksOnlyWhenNeeded(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, ahost := w.client(etcdclaims.Config{TTL: 15 * sec})
		b, bhost := w.client(etcdclaims.Config{TTL: 15 * sec})
		c, chost := w.client(etcdclaims.Config{TTL: 15 * sec})
		asked := func(d time.Duration) [2]bool {
			nb, nc := len(bhost.Sent(steps.Ask)), len(chost.Sent(steps.Ask))
			time.Sleep(d)
			return [2]bool{len(bhost.Sent(steps.Ask)) > nb, len(chost.Sent(steps.Ask)) > nc}
		}
		want := func(what string, got, want [2]bool) {
			t.Helper()
			if got != want {
				t.Errorf("%s: asked %v, want %v", what, got, want)
			}
		}
		held := tryClaim(t, a, "k", etcdclaims.Suspectable())
		tryClaim(t, a, "plain")
		answers := len(ahost.Sent(steps.Answer))
		want("nobody waits", asked(3*sec), [2]bool{})
		ctx, cancel := context.WithCancel(context.Background())
		first := acquiring(ctx, b, "k", etcdclaims.Suspectable())
		plain := acquiring(ctx, c, "plain", etcdclaims.Suspectable())
		time.Sleep(100 * ms)
		second := acquiring(ctx, c, "k", etcdclaims.Suspectable())
		want("one has just come", asked(50*ms), [2]bool{})
		time.Sleep(sec)
		want("two wait", asked(3*sec), [2]bool{true, false})
		cancel()
		<-first
		<-second
		<-plain
		time.Sleep(sec)
		want("none waits any more", asked(3*sec), [2]bool{})
		if n := w.Count("/ask/"); n != 0 {
			t.Errorf("%d questions are left", n)
		}
		if len(ahost.Sent(steps.Answer)) == answers {
			t.Error("nothing was answered")
		}
		ctx, cancel = context.WithTimeout(context.Background(), 5*sec)
		defer cancel()
		if _, err := b.Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		want("a waiter has no such option", asked(3*sec), [2]bool{})
		release(t, held)
		w.CloseClean(a, b, c)
	})
}

// A holder that stood still, and goes on, learns of it soon, and its writes are refused. It
// is then waited for longer, and after some minutes as before.
func TestSuspectWrongly(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		lost := make(chan *etcdclaims.LostError, 10)
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec, Hooks: onLoss(func(l *etcdclaims.LostError) { lost <- l })})
		hooks, told := suspicions()
		b, _ := w.client(etcdclaims.Config{TTL: 15 * sec, Hooks: hooks})
		takenAfter := func() time.Duration {
			held := tryClaim(t, a, "k", etcdclaims.Suspectable())
			done := w.waitingFor(b, "k")
			cut := time.Now()
			host.Cut()
			r := <-done[0]
			noErr(t, r.err)
			if held.Check() != nil {
				t.Error("the old owner cannot know")
			}
			time.Sleep(time.Until(cut.Add(4 * sec)))
			noErr(t, r.cl.Check())
			writing := make(chan error, 1)
			go func() {
				_, err := held.Txn(context.Background()).Commit()
				writing <- err
			}()
			host.Heal()
			healed := time.Now()
			l := <-lost
			if d := time.Since(healed); l.Reason != etcdclaims.ReasonSuperseded || d > 500*ms {
				t.Errorf("lost after %v: %v", d, l)
			}
			if err := <-writing; !errors.Is(err, etcdclaims.ErrLost) {
				t.Errorf("a stale write: %v", err)
			}
			lossOf(t, held.Check(), etcdclaims.ReasonSuperseded)
			if s := <-told; !s.wrong || s.claims != 1 || time.Since(healed) > 2*sec {
				t.Errorf("told of %+v after %v", s, time.Since(healed))
			}
			release(t, r.cl)
			return r.at.Sub(cut)
		}
		for i, least := range []time.Duration{390 * ms, 840 * ms, 1740 * ms, 3540 * ms, 3540 * ms} {
			if d := takenAfter(); d < least || d > least+130*ms {
				t.Errorf("suspicion %d after %v, want %v", i+1, d, least)
			}
		}
		judged(t, b, 5, 5)
		time.Sleep(10 * time.Minute)
		if d := takenAfter(); d > 520*ms {
			t.Errorf("suspicion later after %v", d)
		}
		w.CloseClean(a, b)
	})
}

// ErrSuspected is the cause if the notice arrives first.
func TestSuspectedHolderIsTold(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec, Owner: "api-7"})
		b, _ := w.client(etcdclaims.Config{TTL: 15 * sec, Owner: "api-8"})
		held := tryClaim(t, a, "k", etcdclaims.Suspectable())
		done := w.waitingFor(b, "k")
		host.Cut()
		cl := w.within(sec, done[0])
		host.Heal()
		<-held.Done()
		if err := held.Err(); !errors.Is(err, etcdclaims.ErrSuspected) || !errors.Is(err, etcdclaims.ErrLost) {
			t.Error(err)
		}
		time.Sleep(5 * sec)
		if n := w.Count("/evict/") + w.Count("/ask/"); n != 0 {
			t.Errorf("%d notices are left", n)
		}
		release(t, cl)
		w.CloseClean(a, b)
	})
}

// What is lost or late on the way delays a suspicion, or prevents it.
func TestSuspectDespiteFaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		holder, accuser claimtest.Fault
		alive           bool // the holder lives on, and keeps its key
	}{
		"question lost":              {accuser: claimtest.Fault{On: steps.Ask, LoseRequest: true}, alive: true},
		"question's reply lost":      {accuser: claimtest.Fault{On: steps.Ask, LoseReply: true}, alive: true},
		"all questions late":         {accuser: claimtest.Fault{On: steps.Ask, Times: -1, DelayRequest: sec}, alive: true},
		"all replies late":           {accuser: claimtest.Fault{On: steps.Ask, Times: -1, DelayReply: sec}, alive: true},
		"answer lost":                {holder: claimtest.Fault{On: steps.Answer, LoseRequest: true}, alive: true},
		"answer refused":             {holder: claimtest.Fault{On: steps.Answer, Times: 2, Code: codes.Unavailable}, alive: true},
		"answer's reply lost":        {holder: claimtest.Fault{On: steps.Answer, Times: 3, LoseReply: true}, alive: true},
		"answers late":               {holder: claimtest.Fault{On: steps.Answer, Times: -1, DelayRequest: 140 * ms}, alive: true},
		"events late":                {holder: claimtest.Fault{On: claimtest.Watch, Times: -1, DelayReply: 20 * ms}, alive: true},
		"asked and killed":           {},
		"question lost and killed":   {accuser: claimtest.Fault{On: steps.Ask, Skip: 30, LoseRequest: true}},
		"take-over lost":             {accuser: claimtest.Fault{On: steps.TakeOver, LoseRequest: true, Code: codes.Unavailable}},
		"take-over's reply lost":     {accuser: claimtest.Fault{On: steps.TakeOver, LoseReply: true, Code: codes.Unavailable}},
		"take-over's reply too late": {accuser: claimtest.Fault{On: steps.TakeOver, LoseReply: true}},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			a, ahost := w.client(etcdclaims.Config{TTL: 15 * sec})
			b, bhost := w.client(etcdclaims.Config{TTL: 15 * sec})
			held := tryClaim(t, a, "k", etcdclaims.Suspectable())
			if tt.holder.On != claimtest.Every {
				ahost.Inject(tt.holder)
			}
			if tt.accuser.On != claimtest.Every {
				bhost.Inject(tt.accuser)
			}
			done := w.waitingFor(b, "k")
			time.Sleep(5 * sec)
			judged(t, b, 0, 0)
			noErr(t, held.Check())
			if tt.alive {
				ahost.RemoveFaults()
				bhost.RemoveFaults()
				time.Sleep(5 * sec)
				release(t, held)
				release(t, w.within(sec, done[0]))
				judged(t, b, 0, 0)
				w.CloseClean(a, b)
				return
			}
			ahost.Kill()
			cl := w.within(8*sec, done[0])
			if cl.Fence() <= held.Fence() {
				t.Errorf("fence %d after %d", cl.Fence(), held.Fence())
			}
			judged(t, b, 1, 0)
			time.Sleep(20 * sec)
			judged(t, b, 1, 0)
			release(t, cl)
			w.CloseClean(b)
		})
	}
}

// While etcd has no leader, or does not answer, and for a while after that, nobody is
// suspected.
func TestSuspectNobodyWithoutEtcd(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"no leader", "cut off", "accuser cut off", "holder cut off longer", "restarted", "stalls"} {
		virtualCase(t, how, func(t *testing.T, w *world) {
			a, ahost := w.client(etcdclaims.Config{TTL: 15 * sec})
			b, bhost := w.client(etcdclaims.Config{TTL: 15 * sec})
			held := tryClaim(t, a, "k", etcdclaims.Suspectable())
			done := w.waitingFor(b, "k")
			for range 2 {
				switch how {
				case "no leader":
					leaderless := claimtest.Fault{Times: -1, Err: rpctypes.ErrGRPCNoLeader}
					ahost.Break()
					bhost.Break()
					ahost.Inject(leaderless)
					bhost.Inject(leaderless)
				case "cut off", "holder cut off longer":
					ahost.Cut()
					fallthrough
				case "accuser cut off":
					bhost.Cut()
				case "restarted":
					w.Server.Restart(t)
				case "stalls":
					stall := claimtest.Fault{Times: -1, DelayRequest: sec}
					ahost.Inject(stall)
					bhost.Inject(stall)
				}
				time.Sleep(2 * sec)
				if how == "holder cut off longer" {
					bhost.Heal()
					time.Sleep(sec)
				}
				for _, h := range []*claimtest.Host{ahost, bhost} {
					h.RemoveFaults()
					h.Heal()
				}
				time.Sleep(5 * sec)
			}
			judged(t, b, 0, 0)
			noErr(t, held.Check())
			ahost.Kill()
			w.within(sec, done[0])
			time.Sleep(20 * sec) // until the holder's lease is over
			w.CloseClean(b)
		})
	}
}

// A holder that does not hear the question loses its term, learns of that when it renews,
// and hears the next ones.
func TestSuspectTheDeaf(t *testing.T) {
	t.Parallel()
	hears := map[string]bool{deafness.Delete: true, deafness.Progress: true}
	for how, fault := range deafness.Kinds() {
		virtualCase(t, how, func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			b := w.peer()
			host.Inject(fault)
			held := tryClaim(t, a, "k", etcdclaims.Suspectable())
			began := time.Now()
			done := acquiring(context.Background(), b, "k", etcdclaims.Suspectable())
			if hears[how] {
				time.Sleep(10 * sec)
				judged(t, b, 0, 0)
				release(t, held)
				release(t, w.within(sec, done))
				w.CloseClean(a, b)
				return
			}
			next := <-done
			noErr(t, next.err)
			<-held.Done()
			if d := time.Since(began); d > 7*sec {
				t.Errorf("found out after %v", d)
			}
			lossOf(t, held.Err(), etcdclaims.ReasonSuperseded)
			release(t, next.cl)
			w.CloseClean(a, b)
		})
	}
}

// A holder that hands over or releases is no holder any more: the question is withdrawn.
func TestSuspectAndHandOver(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		clients := []*etcdclaims.Client{w.peer(), w.peer(), w.peer()}
		last := int64(0)
		for round := range testetcd.Fewer(6, 2) {
			held := tryClaim(t, clients[round%3], "k", etcdclaims.Suspectable())
			first := w.waitingFor(clients[(round+1)%3], "k")
			second := w.waitingFor(clients[(round+2)%3], "k")
			release(t, held)
			next := w.within(100*ms, first[0])
			time.Sleep(2 * sec)
			release(t, next)
			after := w.within(100*ms, second[0])
			if held.Fence() <= last || next.Fence() <= held.Fence() || after.Fence() <= next.Fence() {
				t.Errorf("fences %d, %d, %d after %d", held.Fence(), next.Fence(), after.Fence(), last)
			}
			last = after.Fence()
			release(t, after)
		}
		time.Sleep(sec)
		if n := w.Count("/ask/"); n != 0 {
			t.Errorf("%d questions are left", n)
		}
		for _, c := range clients {
			judged(t, c, 0, 0)
		}
		w.CloseClean(clients...)
		w.NoLeases()
	})
}

func TestSuspectableRefused(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		for _, other := range []etcdclaims.AcquireOption{
			etcdclaims.Slots(2), etcdclaims.Shared(), etcdclaims.Manual(), etcdclaims.MinHold(sec),
			etcdclaims.If(clientv3.Compare(clientv3.CreateRevision("/x"), "=", 0)), etcdclaims.Then(clientv3.OpPut("/x", "")),
		} {
			if _, err := c.TryAcquire(context.Background(), "k", etcdclaims.Suspectable(), other); err == nil {
				t.Errorf("with %T: no error", other)
			}
		}
		if n := len(host.Sent(claimtest.Every)); n != 0 {
			t.Errorf("%d requests", n)
		}
		if tryClaim(t, c, "k"); len(host.Sent(claimtest.Every)) == 0 {
			t.Error("requests are not counted")
		}
	})
}

// A take-over that arrives late is refused if the holder has answered since, or if another
// has the key.
func TestSuspectStaleTakeOver(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{true, false} {
		virtualCase(t, fmt.Sprintf("answered %v", answered), func(t *testing.T, w *world) {
			a, ahost := w.client(etcdclaims.Config{TTL: 15 * sec})
			b, bhost := w.client(etcdclaims.Config{TTL: 15 * sec})
			c := w.peer()
			held := tryClaim(t, a, "k", etcdclaims.Suspectable())
			done := w.waitingFor(b, "k")
			late := bhost.Inject(claimtest.Fault{On: steps.TakeOver, DelayRequest: 2 * sec})
			ahost.Cut()
			time.Sleep(sec)
			if late.Hits() != 1 {
				t.Fatal("no take-over is under way")
			}
			const another = `{"v":1,"claim":"x","owner":"another"}`
			if answered {
				ahost.Heal()
			} else {
				w.put("own/k", another, w.lasting())
			}
			time.Sleep(10 * sec)
			judged(t, b, 0, 0)
			if answered {
				w.Ours(held)
				release(t, held)
			} else {
				if got := w.get("own/k"); got != another {
					t.Errorf("taken over: %s", got)
				}
				w.Server.Delete(t, w.Own("k"))
			}
			release(t, w.within(sec, done[0]))
			ahost.Heal()
			time.Sleep(20 * sec)
			w.CloseClean(a, b, c)
		})
	}
}
