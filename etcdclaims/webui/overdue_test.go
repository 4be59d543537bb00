package webui_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// The page says which tick is overdue, and whether it was admitted.
func TestOverdue(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		api, _ := w.client("api-7")
		s, err := sched.New(api, sched.Config{Group: "billing"})
		w.ok(err)
		w.ok(s.Add(sched.Job{
			Name: "ledger", Schedule: calendar.Must(calendar.Cron("0 * * * *")), Overdue: time.Minute,
			Handler: func(ctx context.Context, _ sched.Tick) error {
				<-ctx.Done()
				return ctx.Err()
			},
		}))
		w.ok(s.Add(sched.Job{Name: "mails", Schedule: calendar.Must(calendar.Cron("30 3 * * *")), Handler: func(context.Context, sched.Tick) error { return nil }}))
		ctx, stop := context.WithCancel(w.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		const ledger, mails = "job?group=billing&job=ledger", "job?group=billing&job=mails"
		time.Sleep(30 * time.Minute)
		w.lacks(w.shows(ledger, "on time"), "overdue")
		time.Sleep(32 * time.Minute)
		body := w.shows(ledger, ">overdue<", "the tick of 2000-01-01 01:00:00 UTC has not ended")
		w.lacks(body, "was not admitted", "on time")
		w.shows("schedules", `>overdue</span> <time datetime="2000-01-01T01:00:00Z"`)
		w.shows("", "<b>1</b> of 2 jobs overdue")
		w.shows(mails, "on time")

		stop()
		w.ok(<-ended)
		time.Sleep(3 * time.Hour)
		w.lacks(w.shows(mails, ">overdue<", "the tick of 2000-01-01 03:30:00 UTC was not admitted"), "has not ended", "on time")
		body = w.shows(ledger, "the tick of 2000-01-01 02:00:00 UTC was not admitted")
		w.lacks(body, "the tick of 2000-01-01 02:00:00 UTC has not ended")
		w.shows("schedules", `<time datetime="2000-01-01T03:30:00Z"`)

		w.ok(s.Pause(w.Context(), "mails", "INC-311"))
		time.Sleep(time.Minute)
		w.lacks(w.shows(mails, ">paused<"), "overdue", "on time")
	})
}

// The page shows that the mark of a job is ahead of the clock.
func TestMarkAhead(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		api, _ := w.client("api-7")
		var ahead atomic.Int64
		s, err := sched.New(api, sched.Config{Group: "billing", Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
		w.ok(err)
		w.ok(s.Add(sched.Job{
			Name: "ledger", Schedule: calendar.Must(calendar.Cron("* * * * *")), Overdue: time.Minute,
			Handler: func(context.Context, sched.Tick) error { return nil },
		}))
		ctx, stop := context.WithCancel(w.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(5*time.Minute + 10*time.Second)
		ahead.Store(int64(2 * time.Hour))
		time.Sleep(time.Minute)
		ahead.Store(0)
		time.Sleep(10 * time.Minute)
		const ledger = "job?group=billing&job=ledger"
		w.lacks(w.shows(ledger, "the high-water mark 2000-01-01T02:06:00Z is ahead of the clock", ">overdue<", "was not admitted"), "on time")
		w.shows("schedules", "problem")
		stop()
		w.ok(<-ended)
	})
}
