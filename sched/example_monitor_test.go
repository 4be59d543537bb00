package sched_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.uber.org/zap"
)

// pings reports each run of a job to a monitor, as healthchecks.io expects it: a POST to the
// URL after a success, and to that URL with /fail after a failure.
func pings(urls map[string]string) sched.Middleware {
	client := &http.Client{Timeout: 10 * time.Second}
	return func(next sched.Handler) sched.Handler {
		return func(ctx context.Context, tick sched.Tick) error {
			err := next(ctx, tick)
			url, body := urls[tick.Job], tick.ID()
			if url == "" {
				return err
			}
			if err != nil {
				url, body = url+"/fail", fmt.Sprintf("%s: %v", body, err)
			}
			resp, lost := client.Post(url, "text/plain", strings.NewReader(body))
			if lost != nil { // the tick is done all the same: the monitor raises the alarm
				return err
			}
			_ = resp.Body.Close()
			return err
		}
	}
}

// A monitor outside raises an alarm when it does not hear of a run in time: also if no process
// runs any more, or a tick was missed.
func ExampleMiddleware_monitor() {
	heard := make(chan string, 1)
	monitor := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { heard <- r.Method + " " + r.URL.Path }))
	defer monitor.Close()
	claims, err := etcdclaims.NewPassthrough(etcdclaims.Config{Logger: zap.Must(zap.NewProduction())}) // without etcd, to be short
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler, err := sched.New(claims, sched.Config{
		Group: "billing", Middleware: []sched.Middleware{pings(map[string]string{"invoices": monitor.URL + "/d2f5"})},
	})
	if err == nil {
		err = scheduler.Add(sched.Job{
			Name: "invoices", Schedule: calendar.Must(calendar.Cron("@reboot")),
			Handler: func(context.Context, sched.Tick) error { return errors.New("no disk") },
		})
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- scheduler.Run(ctx) }()
	fmt.Println(<-heard)
	stop()
	if err := <-ended; err != nil {
		fmt.Println(err)
	}
	// Output: POST /d2f5/fail
}
