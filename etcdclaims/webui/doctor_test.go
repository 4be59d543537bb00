package webui_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/internal/steps"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
)

// revision is etcd's, which each write raises.
func (w *world) revision() int64 {
	w.Helper()
	resp, err := w.server.Admin().Get(w.Context(), "k")
	w.ok(err)
	return resp.Header.Revision
}

// Who looks at the page examines etcd, and writes nothing. However many look, it is
// examined once in a while.
func TestExamination(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		before := w.revision()
		body := w.shows("health", "Nothing is wrong", "0 keys are held", "0 in line", "0 records", "without dead letters", "none paused")
		if strings.Contains(body, "<form") || !strings.Contains(body, "None yet") {
			w.Error("a form is shown, or a trial")
		}
		for range 50 {
			w.opens("health")
		}
		time.Sleep(time.Second)
		lists := len(w.host.Sent("status"))
		time.Sleep(5 * time.Minute)
		if n := len(w.host.Sent("status")) - lists; n < 20 || n > 32 { // by an examination, and for the table of members
			w.Errorf("in five minutes 50 tabs examined etcd %d times", n)
		}
		if n := len(w.host.Sent("alarm")); n > 0 {
			w.Errorf("etcd was asked for its alarms %d times, by an entry in its log each", n)
		}
		if after := w.revision(); after != before {
			w.Errorf("revision %d, before %d: looking has written", after, before)
		}
		_, err := w.server.Admin().Put(w.Context(), "/etcdclaims/own/forever", `{"v":1}`)
		w.ok(err)
		time.Sleep(time.Minute)
		w.shows("health", "without a lease, so that they never expire: forever", "<code>claimctl explain forever</code>")
	})
}

func TestTrial(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	cfg := webui.Config{Access: permissive, Logger: zap.New(core), User: func(*http.Request) string { return "<alice>" }}
	virtually(t, cfg, func(w *world) {
		w.shows("health", `value="trial"`)
		tab := w.opens("health")
		time.Sleep(10 * time.Second)
		tab.drain()
		try := func(code int) {
			w.Helper()
			if answer := w.post(form("trial")); answer.Code != code || code == http.StatusSeeOther && answer.Header().Get("Location") != "health?done=trial" {
				w.Errorf("status %d, want %d: %v", answer.Code, code, answer.Header())
			}
		}
		try(http.StatusSeeOther)
		w.shows("health?done=trial", "The trial has ended", "by <bdi>&lt;alice&gt;</bdi>", "a lease and a claim took", "an event came", "the 99th percentile", "suffice under")
		if tab.next(time.Second) != "changed" {
			w.Error("the tab does not notice")
		}
		if n := logs.FilterMessage("operation carried out").FilterField(zap.String("action", "trial")).Len(); n != 1 {
			w.Errorf("the log has %v", logs.All())
		}
		resp, err := w.server.Admin().Get(w.Context(), "/etcdclaims/own/")
		w.ok(err)
		leases, err := w.server.Admin().Leases(w.Context())
		w.ok(err)
		if len(resp.Kvs) > 0 || len(leases.Leases) > 0 {
			w.Errorf("it left %v and %v", resp.Kvs, leases.Leases)
		}

		grants := func() int { return len(w.host.Sent(claimtest.Grant)) }
		before := grants()
		try(http.StatusConflict)
		if grants() != before {
			w.Error("a second trial at once")
		}
		if n := logs.FilterMessage("operation carried out").Len(); n != 1 {
			w.Errorf("the log has a trial that was not made: %v", logs.All())
		}
		time.Sleep(10 * time.Second)
		first := make(chan int)
		w.host.Inject(claimtest.Fault{On: claimtest.Grant, DelayReply: time.Second})
		go func() { first <- w.post(form("trial")).Code }()
		time.Sleep(500 * time.Millisecond)
		try(http.StatusConflict)
		if code := <-first; code != http.StatusSeeOther {
			w.Errorf("the first: status %d", code)
		}
	})
	virtually(t, webui.Config{}, func(w *world) {
		before := w.revision()
		if answer := w.post(form("trial")); answer.Code != http.StatusForbidden {
			w.Errorf("read-only: status %d", answer.Code)
		}
		if w.revision() != before || len(w.host.Sent(claimtest.Grant)) > 0 {
			w.Error("a trial without permission")
		}
	})
}

// The standbys of a leader wait for ever, and nothing is wrong.
func TestStandby(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		a, _ := w.client("leader")
		_, err := a.TryAcquire(w.Context(), "leader/mailer")
		w.ok(err)
		b, _ := w.client("standby")
		ctx, cancel := context.WithCancel(w.Context())
		done := make(chan error, 1)
		go func() { _, err := b.Acquire(ctx, "leader/mailer"); done <- err }()
		time.Sleep(20 * time.Minute)
		w.eventually("the line is examined", func() bool {
			return strings.Contains(w.shows("health", "Nothing is wrong"), "1 in line")
		})
		cancel()
		<-done
	})
}

// A healthy etcd with a slow network and many queues is examined to the end.
func TestExaminationOfMany(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		c, _ := w.client("worker")
		for i := range 60 {
			q, err := queue.New(c, queue.Config{Name: fmt.Sprint("q", i)})
			w.ok(err)
			_, err = q.Enqueue(w.Context(), queue.NewItem([]byte("x")))
			w.ok(err)
		}
		w.host.Inject(claimtest.Fault{Times: -1, DelayReply: 30 * time.Millisecond})
		w.opens("health")
		w.eventually("all is examined", func() bool {
			body := w.shows("health", "Health")
			if strings.Contains(body, "<bdi>cannot be") || strings.Contains(body, "not examined") {
				w.Fatalf("a check did not end:\n%s", body)
			}
			return strings.Contains(body, "Nothing is wrong")
		})
	})
}

// A finding names keys, owners and queues only to users who may view the page about them.
func TestFindingsOfHiddenPages(t *testing.T) {
	mayViewClaims := false
	cfg := webui.Config{Access: func(_ *http.Request, op webui.Operation) error {
		if op.Page == "health" || op.Page == "claims" && mayViewClaims {
			return nil
		}
		return webui.ErrReadOnly
	}}
	virtually(t, cfg, func(w *world) {
		_, err := w.server.Admin().Put(w.Context(), "/etcdclaims/own/customer-4711", `{"v":1}`)
		w.ok(err)
		w.eventually("all is examined", func() bool {
			body := w.shows("health", "Health")
			if strings.Contains(body, "customer-4711") {
				w.Fatalf("a key is shown:\n%s", body)
			}
			return strings.Contains(body, "about pages that you may not view")
		})
		mayViewClaims = true
		w.shows("health", "customer-4711", "about pages that you may not view")
	})
}

// What can follow from a finding is folded under it, and hidden with the page about it.
func TestFoldedFindings(t *testing.T) {
	mayViewSessions := true
	cfg := webui.Config{Access: func(_ *http.Request, op webui.Operation) error {
		if op.Page == "sessions" && !mayViewSessions {
			return webui.ErrReadOnly
		}
		return nil
	}}
	virtually(t, cfg, func(w *world) {
		c, _ := w.client("worker")
		_, err := c.TryAcquire(w.Context(), "k")
		w.ok(err)
		w.host.Inject(claimtest.Fault{On: "status", Times: -1, Code: codes.Unavailable})
		w.host.Inject(claimtest.Fault{On: steps.TimeToLive, Times: -1, DelayReply: time.Minute})
		w.eventually("the page shows both", func() bool {
			return strings.Contains(w.shows("health", "Health"), "1 finding can follow from it")
		})
		w.shows("health", "does not answer", "<details><summary>1 finding can follow from it", "sessions: <bdi>cannot be listed", "<code>etcdctl --endpoints ")
		mayViewSessions = false
		if body := w.shows("health", "does not answer", "1 finding is about pages that you may not view"); strings.Contains(body, "can follow from it") {
			w.Errorf("%s", body)
		}
	})
}
