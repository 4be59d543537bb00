package middleware_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
)

// election has processes with preferences that want to lead.
type election struct {
	*parliament
	t *testing.T
	w *world
}

// stand lets a process of its own stand for leader. stop ends that, after which done receives.
func (e *election) stand(who string, preference int, opts ...etcdclaims.AcquireOption) (host *claimtest.Host, stop func()) {
	e.t.Helper()
	host = e.w.Server.Host(e.t)
	claims := claimtest.NewClient(e.t, host, etcdclaims.Config{Owner: who})
	end, ended := singleton(e.t, e.parliament, who, claims, func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(2 * sec) // of 3 that it has
		return ctx.Err()
	}, append(opts, etcdclaims.Prefer(preference))...)
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

// A leader that ends hands over to the most preferred process in line, and to nobody before.
func TestSingletonPrefers(t *testing.T) {
	t.Parallel()
	electing(t, "in order", func(t *testing.T, e *election) {
		_, stop := e.stand("spare", 0)
		e.stand("far", 0)
		_, stopNear := e.stand("near", 1)
		_, stopHome := e.stand("home", 2)
		_, stopOther := e.stand("other home", 2)
		time.Sleep(10 * time.Minute)
		e.led("spare")
		for _, end := range []func(){stop, stopHome, stopOther, stopNear} {
			end()
			time.Sleep(sec)
		}
		terms := e.led("spare", "home", "other home", "near", "far")
		for i, term := range terms[1:] {
			if gap := term.from.Sub(terms[i].to); gap > 100*time.Millisecond {
				t.Errorf("nobody led for %v before %s", gap, term.who)
			}
		}
	})
	electing(t, "comes late", func(t *testing.T, e *election) {
		_, stop := e.stand("spare", 0)
		e.stand("far", 0)
		_, leave := e.stand("home", 1)
		stop()
		time.Sleep(sec)
		e.led("spare", "home")
		leave()
		time.Sleep(sec)
		e.stand("home", 1)
		time.Sleep(10 * time.Minute)
		e.led("spare", "home", "far")
	})
	electing(t, "MaxHold", func(t *testing.T, e *election) {
		e.stand("spare", 0, etcdclaims.MaxHold(time.Minute))
		e.stand("far", 0)
		e.stand("home", 1)
		time.Sleep(time.Minute)
		e.led("spare", "home")
	})
}

// A leader that dies is replaced by the first in line, whatever the preferences.
func TestSingletonPreferredDies(t *testing.T) {
	t.Parallel()
	electing(t, "OK", func(t *testing.T, e *election) {
		host, _ := e.stand("home", 1)
		e.stand("spare", 0)
		e.stand("second home", 1)
		died := time.Now()
		host.Kill()
		time.Sleep(20 * sec)
		if terms := e.led("home", "spare"); terms[1].from.Sub(died) > 17*sec {
			t.Errorf("died at %v, terms %+v", died, terms)
		}
	})
}
