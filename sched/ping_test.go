package sched_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// monitor is an HTTP server that passes on what it receives.
func monitor(t *testing.T, answer int) (server *httptest.Server, got chan string) {
	got = make(chan string, 100)
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(answer)
		got <- r.Method + " " + r.URL.RequestURI() + " " + string(body)
	}))
	t.Cleanup(server.Close)
	return server, got
}

// Each outcome is a success, a failure, or not sent.
func TestPing(t *testing.T) {
	server, got := monitor(t, http.StatusOK)
	p, err := sched.NewPing(sched.PingConfig{URLs: map[string]string{"a": server.URL + "/secret?x=1"}})
	noErr(t, err)
	p.Report(sched.Entry{Job: "b", Outcome: sched.OutcomeOK})
	for _, o := range []sched.Outcome{
		sched.OutcomeSkipped, sched.OutcomeWithdrawn, sched.OutcomeReplaced, sched.OutcomeCancelled, sched.OutcomeInterrupted, sched.OutcomeAbandoned,
	} {
		p.Report(sched.Entry{Job: "a", Outcome: o})
	}
	p.Report(sched.Entry{Job: "a", Outcome: sched.OutcomeFailed, Again: true})
	p.Report(sched.Entry{Job: "a", Outcome: sched.OutcomeReplaced, Attempt: 1, Error: "attempt 1 by w failed"})
	if text := <-got; !strings.HasPrefix(text, "POST /secret/fail?x=1 ") {
		t.Errorf("replaced after a failed attempt: %s", text)
	}
	for outcome, path := range map[sched.Outcome]string{
		sched.OutcomeOK: "/secret?x=1", sched.OutcomeFailed: "/secret/fail?x=1", sched.OutcomeLost: "/secret/fail?x=1", sched.OutcomeMissed: "/secret/fail?x=1",
	} {
		p.Report(sched.Entry{Job: "a", Outcome: outcome, Error: "no disk"})
		if text := <-got; !strings.HasPrefix(text, "POST "+path+" ") || !strings.Contains(text, string(outcome)) || !strings.Contains(text, "no disk") {
			t.Errorf("%s: %s", outcome, text)
		}
	}
	for _, url := range []string{"", "localhost/x", "ftp://host/", "http://"} {
		if _, err := sched.NewPing(sched.PingConfig{URLs: map[string]string{"a": url}}); err == nil {
			t.Errorf("%q is accepted", url)
		}
	}
	if _, err := sched.NewPing(sched.PingConfig{Timeout: -1}); err == nil {
		t.Error("a negative timeout is accepted")
	}
}

// A monitor that hangs, fails or is gone delays nothing, and its URL is in no log.
func TestPingFails(t *testing.T) {
	hang := make(chan struct{})
	stuck := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer stuck.Close()
	defer close(hang)
	broken, _ := monitor(t, http.StatusNotFound)
	gone := httptest.NewServer(nil)
	gone.Close()
	core, logs := observer.New(zap.WarnLevel)
	// The timeout is only for the monitor that hangs: a busy machine may answer later than that.
	const timeout = 200 * time.Millisecond
	hangs, err := sched.NewPing(sched.PingConfig{URLs: map[string]string{"stuck": stuck.URL + "/secret"}, Timeout: timeout, Logger: zap.New(core)})
	noErr(t, err)
	p, err := sched.NewPing(sched.PingConfig{
		URLs:   map[string]string{"broken": broken.URL + "/secret", "gone": gone.URL + "/secret"},
		Logger: zap.New(core),
	})
	noErr(t, err)
	reports, began := 0, time.Now()
	// Again if the machine stood still until the first requests had ended.
	for logs.FilterMessageSnippet("too many requests").Len() == 0 && reports < 300 {
		for range 100 {
			hangs.Report(sched.Entry{Job: "stuck", Outcome: sched.OutcomeOK})
		}
		reports += 100
	}
	if took := time.Since(began); took > time.Duration(reports)*timeout*3/4 {
		t.Errorf("%d times Report took %v", reports, took)
	}
	want := func(part string, n int) {
		t.Helper()
		for range 1000 {
			if logs.FilterFieldKey("job").Len() >= n {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		all := fmt.Sprint(logs.TakeAll())
		if !strings.Contains(all, part) || strings.Contains(all, "secret") {
			t.Errorf("%s, want %s", all, part)
		}
	}
	want("too many requests", reports)
	p.Report(sched.Entry{Job: "broken", Outcome: sched.OutcomeOK})
	want("404", 1)
	p.Report(sched.Entry{Job: "gone", Outcome: sched.OutcomeOK})
	want("refused", 1)
}

// The monitor of a job hears of each run.
func ExamplePing() {
	heard := make(chan string)
	monitor := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { heard <- r.URL.Path }))
	defer monitor.Close()
	ping, err := sched.NewPing(sched.PingConfig{URLs: map[string]string{"invoices": monitor.URL + "/d2f5"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	claims, err := etcdclaims.NewPassthrough(etcdclaims.Config{}) // without etcd, to be short
	if err != nil {
		panic(err)
	}
	scheduler, err := sched.New(claims, sched.Config{Group: "default", Hooks: sched.Hooks{Finished: ping.Report, Left: ping.Report}})
	if err == nil {
		err = scheduler.Add(sched.Job{
			Name: "invoices", Schedule: calendar.Must(calendar.Cron("@reboot")),
			Handler: func(context.Context, sched.Tick) error { return fmt.Errorf("no disk") },
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- scheduler.Run(ctx) }()
	fmt.Println(<-heard)
	stop()
	if err = <-ended; err != nil {
		fmt.Println(err)
	}
	// Output: /d2f5/fail
}
