package middleware_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
	"google.golang.org/grpc/codes"
)

// election has processes with preferences that want to lead.
type election struct {
	*parliament
	t *testing.T
	w *world
}

const yieldAfter = 20 * sec

// stand lets a process of its own stand for leader. stop ends that, after which done receives.
func (e *election) stand(who string, preference int, opts ...etcdclaims.AcquireOption) (host *claimtest.Host, stop func()) {
	e.t.Helper()
	host = e.w.server.Host(e.t)
	claims := claimtest.NewClient(e.t, host, etcdclaims.Config{Owner: who})
	end, ended := singleton(e.t, e.parliament, who, claims, func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(2 * sec) // of 3 that it has
		return ctx.Err()
	}, append(opts, etcdclaims.Prefer(preference), etcdclaims.YieldAfter(yieldAfter))...)
	time.Sleep(sec)
	return host, func() { end(); <-ended }
}

// led fails unless these processes have led, in this order. It returns their terms.
func (e *election) led(want ...string) []term {
	e.t.Helper()
	terms := e.check(e.t)
	var got []string
	for _, t := range terms {
		got = append(got, t.who)
	}
	if !slices.Equal(got, want) {
		e.t.Fatalf("%q led, want %q: %+v", got, want, terms)
	}
	return terms
}

// electing runs a subtest with an election.
func electing(t *testing.T, name string, f func(t *testing.T, e *election)) {
	t.Helper()
	inWorld(t, name, func(t *testing.T, w *world) { f(t, &election{&parliament{}, t, w}) })
}

// The most preferred process leads soon after it has come, for as long as it is there.
func TestSingletonPrefers(t *testing.T) {
	t.Parallel()
	electing(t, "comes late", func(t *testing.T, e *election) {
		e.stand("spare", 0)
		time.Sleep(time.Minute)
		e.led("spare")
		_, stop := e.stand("home", 1)
		time.Sleep(yieldAfter + 5*sec)
		terms := e.led("spare", "home")
		if !errors.Is(terms[0].why, fencing.ErrYield) || !errors.Is(terms[0].why, etcdclaims.ErrYield) {
			t.Errorf("stopped for %v", terms[0].why)
		}
		if gap := terms[1].from.Sub(terms[0].to); gap > 100*time.Millisecond {
			t.Errorf("nobody led for %v", gap)
		}
		time.Sleep(10 * time.Minute)
		e.led("spare", "home")
		stop()
		time.Sleep(sec)
		e.led("spare", "home", "spare")
	})
	electing(t, "three", func(t *testing.T, e *election) {
		e.stand("spare", 0)
		e.stand("near", 1)
		host, _ := e.stand("home", 2)
		time.Sleep(time.Minute)
		e.led("spare", "near", "home") // each after its time
		died := time.Now()
		host.Kill()
		time.Sleep(2 * time.Minute)
		// The first in line takes the key of a dead leader, and yields.
		if terms := e.led("spare", "near", "home", "spare", "near"); terms[3].from.Sub(died) > 17*sec {
			t.Errorf("%+v", terms)
		}
		e.stand("second home", 2)
		_, stop := e.stand("third home", 2)
		time.Sleep(10 * time.Minute)
		e.led("spare", "near", "home", "spare", "near", "second home")
		stop()
	})
	electing(t, "equals", func(t *testing.T, e *election) {
		e.stand("one", 1)
		e.stand("two", 1)
		e.stand("spare", 0)
		time.Sleep(10 * time.Minute)
		e.led("one")
	})
}

// A preferred process that dies is replaced, and leads again when it has been in line for the time.
func TestSingletonPreferredDies(t *testing.T) {
	t.Parallel()
	electing(t, "OK", func(t *testing.T, e *election) {
		e.stand("spare", 0)
		host, _ := e.stand("home", 1)
		time.Sleep(time.Minute)
		died := time.Now()
		host.Kill()
		time.Sleep(20 * sec)
		if terms := e.led("spare", "home", "spare"); terms[2].from.Sub(died) > 17*sec {
			t.Errorf("died at %v, terms %+v", died, terms)
		}
		for range 5 { // it crashes again and again, before it leads
			host, stop := e.stand("home", 1)
			time.Sleep(yieldAfter / 2)
			host.Kill()
			time.Sleep(20 * sec)
			stop()
		}
		e.led("spare", "home", "spare")
		e.stand("home", 1)
		time.Sleep(yieldAfter + 5*sec)
		e.led("spare", "home", "spare", "home")
	})
}

// With Suspectable it is replaced in half a second.
func TestSingletonPreferredSuspected(t *testing.T) {
	t.Parallel()
	electing(t, "OK", func(t *testing.T, e *election) {
		e.stand("spare", 0, etcdclaims.Suspectable())
		host, _ := e.stand("home", 1, etcdclaims.Suspectable())
		time.Sleep(time.Minute)
		died := time.Now()
		host.Kill()
		time.Sleep(2 * sec)
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.terms) != 3 || e.terms[2].who != "spare" || e.terms[2].from.Sub(died) > sec {
			t.Errorf("died at %v, terms %+v", died, e.terms)
		}
	})
}

// If the preferred process has left when the leader has stopped, the key is not left to nobody.
func TestSingletonPreferredLeaves(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"spare", "equal"} {
		electing(t, next, func(t *testing.T, e *election) {
			e.stand("spare", 0)
			if next == "equal" {
				e.stand("equal", 0)
			}
			_, stop := e.stand("home", 1)
			time.Sleep(yieldAfter) // the leader is stopping
			if terms := e.led("spare"); !terms[0].to.IsZero() {
				t.Fatalf("terms %+v", terms)
			}
			stop()
			time.Sleep(3 * sec)
			if terms := e.led("spare", next); terms[1].from.Sub(terms[0].to) > sec {
				t.Errorf("terms %+v", terms)
			}
		})
	}
}

// A lost hand-over, or one whose reply is lost, delays the next leader by seconds.
func TestSingletonLossyYield(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]claimtest.Fault{
		"lost":             {LoseRequest: true},
		"reply lost":       {LoseReply: true},
		"answered wrongly": {LoseReply: true, Code: codes.Unavailable},
	} {
		electing(t, name, func(t *testing.T, e *election) {
			host, _ := e.stand("spare", 0)
			fault.On = claimtest.HandOver
			met := host.Inject(fault)
			e.stand("home", 1)
			time.Sleep(yieldAfter + 10*sec)
			e.led("spare", "home")
			if met.Hits() != 1 {
				t.Error("the fault was not met")
			}
			time.Sleep(time.Minute)
			e.led("spare", "home")
		})
	}
}

// A leader that cannot finish its work before it gives way is told of with its error.
func TestSingletonFailsToGiveWay(t *testing.T) {
	t.Parallel()
	electing(t, "error", func(t *testing.T, e *election) {
		broken := errors.New("flush failed")
		failed := make(chan error, 10)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		claims := claimtest.NewClient(t, e.w.server.Host(t), etcdclaims.Config{Owner: "spare"})
		go func() {
			done <- middleware.Singleton(ctx, claims, "leader", func(ctx context.Context) error {
				<-ctx.Done()
				return broken
			}, middleware.SingletonConfig{Failed: func(err error) { failed <- err }}, etcdclaims.Prefer(0), etcdclaims.YieldAfter(sec))
		}()
		time.Sleep(sec)
		home := claimtest.NewClient(t, e.w.server.Host(t), etcdclaims.Config{Owner: "home"})
		claim, err := home.Acquire(ctx, "leader", etcdclaims.Prefer(1))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // Failed is called once the key is given away
		if n := len(failed); n != 1 || !errors.Is(<-failed, broken) {
			t.Errorf("told %d times, or of another error", n)
		}
		cancel()
		<-done
		if err := claim.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
