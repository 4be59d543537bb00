package etcdclaims_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// Clients at any distance from etcd keep their keys while they live, and lose them soon when
// they die.
func TestSuspectNobodyFar(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		holder, accuser, jitter time.Duration // round trips
		within                  time.Duration // of the holder's death the key has its next owner
	}{
		{holder: ms, accuser: ms, within: 530 * ms},
		{holder: 200 * ms, accuser: ms, jitter: 20 * ms, within: 1200 * ms},
		{holder: 400 * ms, accuser: ms, jitter: 200 * ms, within: 3800 * ms},
		{holder: 800 * ms, accuser: ms, jitter: 80 * ms, within: 4700 * ms},
		{holder: ms, accuser: 200 * ms, jitter: 20 * ms, within: 2 * sec},
		{holder: ms, accuser: 800 * ms, jitter: 200 * ms, within: 8 * sec},
		{holder: 800 * ms, accuser: 800 * ms, jitter: 200 * ms, within: 8 * sec},
	} {
		for _, share := range []time.Duration{1, 5, 9} { // tenths of the round trip that are the way to etcd
			virtualCase(t, fmt.Sprintf("%v, %v, %d0%%", tt.holder, tt.accuser, share), func(t *testing.T, w *world) {
				far := func(rtt time.Duration) (*etcdclaims.Client, *claimtest.Host) {
					host := w.Server.Host(t)
					host.SetLatency(rtt*share/10, rtt*(10-share)/10, min(rtt, tt.jitter)/2)
					w.Cleanup(func() { host.RemoveFaults(); host.Heal() })
					return newClient(t, host.Etcd(t), etcdclaims.Config{TTL: 15 * sec, Prefix: w.Prefix}), host
				}
				a, host := far(tt.holder)
				b, _ := far(tt.accuser)
				held := tryClaim(t, a, "k", etcdclaims.Suspectable())
				done := acquiring(context.Background(), b, "k", etcdclaims.Suspectable())
				time.Sleep(testetcd.Fewer(time.Minute, 15*sec))
				judged(t, b, 0, 0)
				noErr(t, held.Check())
				host.Kill()
				killed := time.Now()
				r := <-done
				noErr(t, r.err)
				if d := r.at.Sub(killed); d > tt.within {
					t.Errorf("taken after %v, want %v at most", d, tt.within)
				}
				judged(t, b, 1, 0)
				time.Sleep(20 * sec) // until the holder's lease is over
				w.CloseClean(b)
			})
		}
	}
}

// Answers whose replies are late are answers all the same, and when no caller waits any more
// nothing is answered.
func TestSuspectAnswersUnacknowledged(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{100 * ms, 160 * ms, 300 * ms, sec} {
		virtualCase(t, d.String(), func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			b := w.peer()
			host.Inject(claimtest.Fault{On: steps.Answer, Times: -1, DelayReply: d})
			held := tryClaim(t, a, "k", etcdclaims.Suspectable())
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if r := <-acquiring(ctx, b, "k", etcdclaims.Suspectable()); r.err == nil {
				t.Error("the key of a live holder was taken")
			}
			judged(t, b, 0, 0)
			noErr(t, held.Check())
			time.Sleep(10 * sec)
			n := len(host.Sent(steps.Answer))
			time.Sleep(time.Minute)
			if more := len(host.Sent(steps.Answer)) - n; n < 300 || more > 0 {
				t.Errorf("%d answers, and %d when no question stood", n, more)
			}
		})
	}
}

// A question that is withdrawn or answered is not answered again, also if no reply tells the
// holder's client of that.
func TestAnswersEndWithTheirQuestion(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		b := w.peer()
		tryClaim(t, a, "k", etcdclaims.Suspectable())
		host.Inject(claimtest.Fault{On: steps.Answer, Times: -1, LoseRequest: true})
		ctx, cancel := context.WithTimeout(context.Background(), sec)
		defer cancel()
		<-acquiring(ctx, b, "k", etcdclaims.Suspectable())
		time.Sleep(10 * sec)
		n := len(host.Sent(steps.Answer))
		time.Sleep(time.Minute)
		if more := len(host.Sent(steps.Answer)) - n; n == 0 || more > 0 {
			t.Errorf("%d answers, and %d when no question stood", n, more)
		}
	})
}

// A holder whose answers reach etcd late, each after the same time, is waited for.
func TestSuspectNobodyWhoseAnswersAreLate(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{300 * ms, 500 * ms, 800 * ms} {
		virtualCase(t, late.String(), func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			b := w.peer()
			for range 1000 {
				hold := make(chan struct{})
				host.Inject(claimtest.Fault{On: steps.Answer, Hold: hold, Saw: func(any) { time.AfterFunc(late, func() { close(hold) }) }})
			}
			held := tryClaim(t, a, "k", etcdclaims.Suspectable())
			for range testetcd.Fewer(20, 5) {
				ctx, cancel := context.WithTimeout(context.Background(), 3*sec)
				<-acquiring(ctx, b, "k", etcdclaims.Suspectable())
				cancel()
				time.Sleep(10 * ms)
			}
			judged(t, b, 0, 0)
			noErr(t, held.Check())
		})
	}
}

// A suspicion is judged while callers of the same client wait for the same process again.
func TestSuspectWronglyAndComeBack(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		b := w.peer()
		for round := range int64(5) {
			held := tryClaim(t, a, "k", etcdclaims.Suspectable())
			done := w.waitingFor(b, "k")
			host.Cut()
			r := <-done[0]
			noErr(t, r.err)
			release(t, r.cl)
			host.Heal()
			<-held.Done()
			// It comes back for less than a second each time, and is never gone for one.
			held = tryClaim(t, a, "other", etcdclaims.Suspectable())
			for range 3 {
				ctx, cancel := context.WithTimeout(context.Background(), 300*ms)
				<-acquiring(ctx, b, "other", etcdclaims.Suspectable())
				cancel()
			}
			judged(t, b, round+1, round+1)
			release(t, held)
		}
	})
}

// A live holder whose answers suddenly take longer is suspected once. The accuser comes back
// within a second each time, so its suspicion is judged by the answer to its next question, and
// it waits longer from then on.
func TestSuspectWronglyOnceAnswersAreLate(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		b := w.peer()
		held := tryClaim(t, a, "k", etcdclaims.Suspectable())
		done := w.waitingFor(b, "k")
		for range 1000 {
			hold := make(chan struct{})
			host.Inject(claimtest.Fault{On: steps.Answer, Hold: hold, Saw: func(any) { time.AfterFunc(600*ms, func() { close(hold) }) }})
		}
		r := <-done[0]
		noErr(t, r.err)
		judged(t, b, 1, 0)
		release(t, r.cl)
		<-held.Done()
		for range 20 {
			held = tryClaim(t, a, "k", etcdclaims.Suspectable())
			ctx, cancel := context.WithTimeout(context.Background(), 1500*ms)
			<-acquiring(ctx, b, "k", etcdclaims.Suspectable())
			cancel()
			time.Sleep(10 * ms)
			noErr(t, held.Check())
			release(t, held)
		}
		judged(t, b, 1, 1)
	})
}

// A holder that died before it was asked is waited for a little longer: it might have been
// far.
func TestSuspectTheDeadBeforeTheFirstQuestion(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		b, c := w.peer(), w.peer()
		tryClaim(t, a, "k", etcdclaims.Suspectable())
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		plain := acquiring(ctx, b, "k") // without the option, so it does not ask
		time.Sleep(sec)
		next := acquiring(context.Background(), c, "k", etcdclaims.Suspectable())
		time.Sleep(sec)
		host.Kill()
		time.Sleep(3 * sec)
		cancel()
		<-plain
		began := time.Now()
		r := <-next
		noErr(t, r.err)
		if d := r.at.Sub(began); d > 1800*ms {
			t.Errorf("taken %v after it was the first in line", d)
		}
	})
}

// Where every client waits for every other, asking costs 100 requests a second at most, and
// the keys of one that dies have their next owners before its lease ends.
func TestSuspectCost(t *testing.T) {
	t.Parallel()
	for n, within := range map[int]time.Duration{2: 530 * ms, 8: 1200 * ms, 20: 2500 * ms} {
		virtualCase(t, fmt.Sprint(n), func(t *testing.T, w *world) {
			clients, hosts := make([]*etcdclaims.Client, n), make([]*claimtest.Host, n)
			for i := range clients {
				clients[i], hosts[i] = w.client(etcdclaims.Config{TTL: 15 * sec})
			}
			var waiting []<-chan claimed // for the keys of the last
			for i, a := range clients {
				for j, b := range clients {
					if i == j {
						continue
					}
					key := fmt.Sprintf("k%d-%d", i, j)
					tryClaim(t, a, key, etcdclaims.Suspectable())
					ch := acquiring(context.Background(), b, key, etcdclaims.Suspectable())
					if i == n-1 {
						waiting = append(waiting, ch)
					}
				}
			}
			requests := func() (sum int64) {
				for _, c := range clients {
					sum += c.Stats().Requests
				}
				return sum
			}
			time.Sleep(5 * sec)
			before := requests()
			time.Sleep(10 * sec)
			if rate := (requests() - before) / 10; rate > 100 || rate < 20 {
				t.Errorf("%d requests a second", rate)
			}
			for _, c := range clients {
				judged(t, c, 0, 0)
			}
			hosts[n-1].Kill()
			killed := time.Now()
			for _, ch := range waiting {
				r := <-ch
				noErr(t, r.err)
				if d := r.at.Sub(killed); d > within {
					t.Errorf("taken after %v, want %v at most", d, within)
				}
			}
			for _, c := range clients[:n-1] {
				judged(t, c, 1, 0)
			}
		})
	}
}

// Where many clients wait for keys of one holder, that holder answers the questions of all
// together, and is not suspected.
func TestSuspectNobodyAskedByMany(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		const n = 20
		a, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
		clients := []*etcdclaims.Client{a}
		for i := range n {
			b := w.peer()
			clients = append(clients, b)
			key := fmt.Sprint("k", i)
			tryClaim(t, a, key, etcdclaims.Suspectable())
			acquiring(context.Background(), b, key, etcdclaims.Suspectable())
		}
		requests := func() (sum int64) {
			for _, c := range clients {
				sum += c.Stats().Requests
			}
			return sum
		}
		time.Sleep(5 * sec)
		before, own := requests(), a.Stats().Requests
		time.Sleep(10 * sec)
		all, own := (requests()-before)/10, (a.Stats().Requests-own)/10
		t.Logf("%d requests a second, %d of these of the holder", all, own)
		if all > 100 || all < n || own > 5 {
			t.Errorf("%d requests a second, %d of these of the holder", all, own)
		}
		for _, c := range clients {
			judged(t, c, 0, 0)
		}
	})
}

// Many callers of one client wait for the key of a process that dies. Each has it in its turn,
// by one suspicion, and passes it on.
func TestSuspectForManyCallers(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		callers := testetcd.Fewer(500, 50)
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		b, bhost := w.client(etcdclaims.Config{TTL: 15 * sec})
		last := tryClaim(t, a, "k", etcdclaims.Suspectable()).Fence()
		all := make(chan claimed, callers)
		for range callers {
			ch := acquiring(context.Background(), b, "k", etcdclaims.Suspectable())
			go func() { all <- <-ch }()
		}
		time.Sleep(2 * sec)
		asked := len(bhost.Sent(steps.Ask))
		time.Sleep(sec)
		if n := len(bhost.Sent(steps.Ask)) - asked; n == 0 || n > 21 {
			t.Errorf("%d questions a second", n)
		}
		host.Kill()
		killed := time.Now()
		for i := range callers {
			r := <-all
			noErr(t, r.err)
			if d := r.at.Sub(killed); i == 0 && d > 530*ms || d > 5*sec {
				t.Errorf("caller %d has the key after %v", i, d)
			}
			if r.cl.Fence() <= last {
				t.Errorf("fence %d after %d", r.cl.Fence(), last)
			}
			last = r.cl.Fence()
			release(t, r.cl)
		}
		judged(t, b, 1, 0)
		time.Sleep(20 * sec)
		w.CloseClean(b)
	})
}
