package webui_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/etcdclaims/claims/sched/ical"
)

const window = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:1\r\n" +
	"DTSTART;VALUE=DATE:20000101\r\nRRULE:FREQ=WEEKLY\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"

// With Config.ICal the page knows when a job with an iCalendar text is due, and its
// examination when such a job is overdue.
func TestJobWithICalendar(t *testing.T) {
	for name, parse := range map[string]func(text, zone string) (calendar.Calendar, error){"with": ical.ParseText, "without": nil} {
		t.Run(name, func(t *testing.T) {
			virtually(t, webui.Config{ICal: parse}, func(w *world) {
				api, _ := w.client("api-7")
				s, err := sched.New(api, sched.Config{Group: "hosts", ICal: ical.ParseText})
				w.ok(err)
				w.ok(s.Handle("patch", func(context.Context, sched.Tick, json.RawMessage) error { return nil }))
				ctx, stop := context.WithCancel(w.Context())
				ended := make(chan error, 1)
				go func() { ended <- s.Run(ctx) }()
				_, err = s.Define(w.Context(), sched.Definition{
					Name: "patch", Schedule: "30 0 * * *", Kind: "patch", Only: &sched.CalendarData{ICal: window}, Overdue: 10 * time.Minute,
				})
				w.ok(err)
				time.Sleep(time.Minute)
				known := func(where, text string) {
					t.Helper()
					if _, body := w.get(where); strings.Contains(body, text) != (parse != nil) {
						t.Errorf("%s: %q is shown: %t", where, text, parse == nil)
					}
				}
				known("job?group=hosts&job=patch", "2000-01-08T00:30:00Z")
				stop()
				w.ok(<-ended)
				time.Sleep(time.Hour)
				known("schedules", "overdue")
				w.get("health") // which examines etcd
				time.Sleep(10 * time.Second)
				known("health", "overdue: patch")
			})
		})
	}
}

// Requests that wait for an owner are shown with the job.
func TestJobWithRequests(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		api, _ := w.client("api-7")
		s, err := sched.New(api, sched.Config{Group: "hosts"})
		w.ok(err)
		_, err = s.Define(w.Context(), sched.Definition{Name: "patch", Schedule: "0 3 * * *", Kind: "patch"})
		w.ok(err)
		ctx, stop := context.WithCancel(w.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(time.Minute)
		_, err = s.RunNow(w.Context(), "patch")
		w.ok(err)
		w.shows("job?group=hosts&job=patch", "1 request waits for the owner", "has no handler of kind")
		w.shows("health", "has no handler of kind &#34;patch&#34;; 1 request waits")
		stop()
		w.ok(<-ended)
	})
}
