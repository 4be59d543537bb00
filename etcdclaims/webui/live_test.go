package webui_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/fencing"
)

// requests counts what the page has sent to etcd.
func (w *world) requests() int { return len(w.host.Sent(claimtest.Every)) }

// What etcd has to do does not depend on how many look.
func TestTabsShareRequests(t *testing.T) {
	requests := func(tabs int) (n int) {
		virtually(t, webui.Config{}, func(w *world) {
			w.busy()
			pages := []string{"overview", "claims", "key?key=orders%2F42", "lines", "queues", "schedules", "sessions", "work", "groups", "refusals", "audit", "health"}
			for _, where := range pages {
				for range tabs {
					if e := w.opens(where).next(5 * time.Second); e != "ready" {
						w.Fatalf("%s: the first event is %q", where, e)
					}
				}
			}
			time.Sleep(time.Minute)
			before := w.requests()
			time.Sleep(2 * time.Minute)
			n = w.requests() - before
		})
		return n
	}
	tabs := 15 // of each page; a handler serves 200 tabs
	if testing.Short() {
		tabs = 6
	}
	one, many := requests(1), requests(tabs)
	t.Logf("in two minutes one tab of each page takes %d requests, %d take %d", one, tabs, many)
	if many > one+one/20 {
		t.Errorf("%d tabs of a page take %d requests, one takes %d", tabs, many, one)
	}
}

// Nothing is read, and nothing is watched, when nobody looks.
func TestIdle(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		w.busy()
		for _, where := range []string{"", "claims", "sessions"} {
			w.shows(where)
		}
		s := w.opens("overview")
		time.Sleep(4 * time.Minute)
		before := w.requests()
		time.Sleep(time.Minute)
		if n := w.requests() - before; n == 0 {
			w.Error("a tab is open, and nothing is read")
		}
		s.leave()
		time.Sleep(2 * time.Minute)
		before = w.requests()
		time.Sleep(20 * time.Minute)
		if n := w.requests() - before; n > 0 {
			w.Errorf("%d requests in 20 minutes without a viewer", n)
		}
		w.shows("claims", "orders/42") // and on it goes
	})
}

func TestEvents(t *testing.T) {
	refusals := new(webui.Refusals)
	virtually(t, webui.Config{MaxTabs: 4, Refusals: refusals}, func(w *world) {
		c, _ := w.client("api-7")
		all, some, key, refused := w.opens("claims"), w.opens("claims?prefix=orders%2F"), w.opens("key?key=orders%2F1"), w.opens("refusals")
		for _, s := range []*stream{all, some, key, refused} {
			if e := s.next(time.Second); e != "ready" {
				w.Fatalf("the first event is %q", e)
			}
		}
		if code, _ := w.get("events?page=claims"); code != http.StatusServiceUnavailable {
			w.Errorf("one tab too many: status %d", code)
		}
		for where, want := range map[string]int{"events?page=no": 404, "events?page=%3A%3A": 400, "events?page=key": 400, "events": 404} {
			if code, _ := w.get(where); code != want {
				w.Errorf("%s: status %d, want %d", where, code, want)
			}
		}
		quiet := func() {
			time.Sleep(10 * time.Second)
			for _, s := range []*stream{all, some, key, refused} {
				s.drain()
			}
		}
		changed := func(s *stream) bool { return s.next(400*time.Millisecond) == "changed" }
		quiet()
		w.claim(c, "other")
		if !changed(all) || changed(key) || changed(refused) {
			w.Error("another key")
		}
		some.drain()
		for i := range 20 {
			w.claim(c, fmt.Sprint("other-", i))
			if !changed(all) {
				w.Error("yet another key")
			}
		}
		if n := some.drain(); n > 5 { // the sessions are read every five seconds
			w.Errorf("%d events about other keys", n)
		}
		quiet()
		claim := w.claim(c, "orders/1")
		if !changed(all) || !changed(some) || !changed(key) {
			w.Error("the key")
		}
		quiet()
		w.shows("key?key=orders/1", "api-7")
		w.ok(claim.Release(w.Context()))
		if !changed(all) || !changed(some) || !changed(key) {
			w.Error("its release")
		}
		quiet()
		gate := refusals.Gate("payments", new(fencing.Memory))
		w.ok(gate.Admit(w.Context(), fencing.Token{Key: "orders/1", Fence: 7}))
		if err := gate.Admit(w.Context(), fencing.Token{Key: "orders/1", Fence: 5}); err == nil {
			w.Error("the gate admits a stale token")
		}
		if refused.next(2*time.Second) != "changed" {
			w.Error("a refusal")
		}
		w.shows("refusals", "STALE_FENCE", "payments", "orders/1", ">5<", ">7<")
		quiet()
		for i := range 1000 { // a thousand changes are a few events
			w.claim(c, keyNumber(i))
		}
		time.Sleep(time.Second)
		if n := all.drain(); n < 1 || n > 60 {
			w.Errorf("%d events", n)
		}
		all.leave()
		<-all.left
		if e := w.opens("claims").next(time.Second); e != "ready" {
			w.Errorf("after one has left: %q", e)
		}
		w.page.Close()
		<-some.left
	})
}

// While etcd does not answer, the page shows what was, and says so.
func TestEtcdAway(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		w.busy()
		pages := []string{"", "claims", "key?key=orders/42", "lines", "work", "schedules", "queues", "sessions", "audit", "health"}
		for _, where := range pages {
			w.shows(where)
		}
		s := w.opens("claims")
		w.host.Cut()
		w.eventually("the page says so", func() bool {
			_, body := w.get("claims")
			return saysAway(body)
		})
		s.drain()
		for _, where := range pages {
			begun := time.Now()
			w.shows(where, `role="alert"><b>etcd `)
			if took := time.Since(begun); took > 5*time.Second {
				w.Errorf("%s took %v", where, took)
			}
		}
		w.shows("claims", "orders/42")
		w.host.Heal()
		w.eventually("the page is well", func() bool {
			_, body := w.get("claims")
			return !saysAway(body)
		})
		if s.next(5*time.Second) != "changed" {
			w.Error("the tab does not notice")
		}
		c, _ := w.client("late")
		w.claim(c, "late/1")
		w.eventually("the claims are right", func() bool {
			_, body := w.get("claims")
			return strings.Contains(body, "late/1")
		})
	})
}
