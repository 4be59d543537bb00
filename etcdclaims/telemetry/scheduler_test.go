package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

func TestScheduler(t *testing.T) {
	inWorld(t, func(w *world) {
		claims, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		var began, runs atomic.Int32
		cfg := sched.Config{Group: "billing", Hooks: sched.Hooks{Began: func(sched.Tick) { began.Add(1) }}}
		w.tel.InstrumentScheduler(&cfg)
		s, err := sched.New(claims, cfg)
		if err != nil {
			w.Fatal(err)
		}
		err = errors.Join(
			s.Add(sched.Job{Name: "fine", Schedule: calendar.Must(calendar.Cron("* * * * *")), Handler: func(ctx context.Context, _ sched.Tick) error {
				time.Sleep(2 * sec)
				return nil
			}}),
			s.Add(sched.Job{Name: "bad", Schedule: calendar.Must(calendar.Cron("* * * * *")), Handler: func(context.Context, sched.Tick) error {
				if runs.Add(1) == 2 {
					time.Sleep(90 * sec) // the third tick finds it running
				}
				return errors.New("no")
			}}))
		if err != nil {
			w.Fatal(err)
		}
		ctx, cancel := context.WithCancel(w.Context())
		returned := make(chan error)
		go func() { returned <- s.Run(ctx) }()
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(3*time.Minute + sec)))
		next := float64(time.Now().Truncate(time.Minute).Add(time.Minute).Unix())
		w.expect(map[string]string{
			"etcdclaims.tick.count{group=billing,job=fine,outcome=ok}":     "2",
			"etcdclaims.tick.count{group=billing,job=bad,outcome=failed}":  "1",
			"etcdclaims.tick.count{group=billing,job=bad,outcome=skipped}": "1",
			"etcdclaims.run.duration{group=billing,job=fine,outcome=ok}":   "2×2.0",
			"etcdclaims.tick.lateness{group=billing,job=fine}":             "3×0.0",
			"etcdclaims.tick.lateness{group=billing,job=bad}":              "2×0.0",
			"etcdclaims.run.active{group=billing}":                         "2",
			"etcdclaims.owner{group=billing}":                              "1",
			"etcdclaims.owner.changes{group=billing}":                      "1",
			"etcdclaims.tick.overdue{group=billing}":                       "0.0",
			"etcdclaims.job.paused{group=billing}":                         "0.0",
			"etcdclaims.tick.next_due.timestamp{group=billing}":            oneDigit(next),
		})
		if n := began.Load(); n != 5 {
			w.Errorf("the hook that was there before was called %d times, want 5", n)
		}

		// An owner that etcd does not answer: ticks become overdue, until it is no owner
		// any more.
		time.Sleep(57 * sec)
		host.Cut()
		time.Sleep(7 * sec)
		w.expect(map[string]string{
			"etcdclaims.owner{group=billing}":        "1",
			"etcdclaims.tick.overdue{group=billing}": "5.0",
		})
		time.Sleep(30 * sec)
		w.expect(map[string]string{
			"etcdclaims.owner{group=billing}":        "0",
			"etcdclaims.tick.overdue{group=billing}": "",
		})
		host.Heal()
		time.Sleep(2 * time.Minute)
		w.expect(map[string]string{
			"etcdclaims.owner{group=billing}":         "1",
			"etcdclaims.owner.changes{group=billing}": "2",
		})
		for _, change := range []struct {
			make func() error
			want string
		}{
			{func() error { return s.Pause(ctx, "fine", "") }, "20.0"},
			{func() error { return s.Resume(ctx, "fine") }, "0.0"},
		} {
			if err := change.make(); err != nil {
				w.Fatal(err)
			}
			time.Sleep(20 * sec)
			w.expect(map[string]string{"etcdclaims.job.paused{group=billing}": change.want})
		}
		cancel()
		if err := <-returned; err != nil {
			w.Error(err)
		}
		w.expect(map[string]string{"etcdclaims.owner{group=billing}": ""}) // it does not run any more
	})
}

// The ticks that CatchUp gives up for a newer one count as missed.
func TestMissedTicks(t *testing.T) {
	inWorld(t, func(w *world) {
		claims, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		cfg := sched.Config{Group: "billing"}
		w.tel.InstrumentScheduler(&cfg)
		s, err := sched.New(claims, cfg)
		if err == nil {
			err = s.Add(sched.Job{Name: "j", Schedule: calendar.Must(calendar.Cron("* * * * *")), Handler: func(context.Context, sched.Tick) error { return nil }})
		}
		if err != nil {
			w.Fatal(err)
		}
		ctx, cancel := context.WithCancel(w.Context())
		returned := make(chan error)
		go func() { returned <- s.Run(ctx) }()
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(2*time.Minute + 30*sec)))
		host.Cut()
		time.Sleep(10 * time.Minute)
		host.Heal()
		time.Sleep(25 * sec)
		w.expect(map[string]string{
			"etcdclaims.tick.count{group=billing,job=j,outcome=ok}":     "3",
			"etcdclaims.tick.count{group=billing,job=j,outcome=missed}": "9",
		})
		cancel()
		if err := <-returned; err != nil {
			w.Error(err)
		}
	})
}

// The handler of a tick has a span of its own, which names the tick, and is linked to the
// caller who asked for it.
func TestTickSpans(t *testing.T) {
	inWorld(t, func(w *world) {
		claims, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
		var order []string
		middleware := func(next sched.Handler) sched.Handler {
			return func(ctx context.Context, tick sched.Tick) error {
				order = append(order, "middleware")
				return next(ctx, tick)
			}
		}
		cfg := sched.Config{Group: "billing", Middleware: []sched.Middleware{middleware}}
		w.tel.InstrumentScheduler(&cfg)
		s, err := sched.New(claims, cfg)
		if err != nil {
			w.Fatal(err)
		}
		tracer := w.traces.Tracer("test")
		err = s.Add(sched.Job{Name: "j", Schedule: calendar.Must(calendar.Cron("0 0 1 1 *")), Handler: func(ctx context.Context, tick sched.Tick) error {
			order = append(order, "handler")
			_, span := tracer.Start(ctx, "handler")
			span.End()
			if len(order) == 4 {
				panic("staged")
			}
			return nil
		}})
		if err != nil {
			w.Fatal(err)
		}
		ctx, cancel := context.WithCancel(w.Context())
		returned := make(chan error)
		go func() { returned <- s.Run(ctx) }()
		time.Sleep(10 * sec)
		request, caller := tracer.Start(w.Context(), "request")
		id, err := s.RunNow(request, "j")
		if err != nil {
			w.Fatal(err)
		}
		time.Sleep(10 * sec)
		if _, err := s.RunNow(w.Context(), "j"); err != nil { // outside all spans
			w.Fatal(err)
		}
		time.Sleep(10 * sec)
		cancel()
		if err := <-returned; err != nil {
			w.Error(err)
		}
		caller.End()
		spans := w.ended()
		ticks, handlers := spans["etcdclaims.tick"], spans["handler"]
		if len(ticks) != 2 || len(handlers) != 2 || fmt.Sprint(order) != "[middleware handler middleware handler]" {
			w.Fatalf("%d ticks, %d handlers, %v", len(ticks), len(handlers), order)
		}
		if handlers[0].Parent().SpanID() != ticks[0].SpanContext().SpanID() {
			w.Error("the handler's span is not a child of the tick's")
		}
		if hold := spans["etcdclaims.hold"]; !slices.ContainsFunc(hold, func(s sdktrace.ReadOnlySpan) bool {
			return s.SpanContext().SpanID() == ticks[0].Parent().SpanID()
		}) {
			w.Error("the tick's span is not a child of its claim's")
		}
		if attr(ticks[0], "etcdclaims.tick") != id || ticks[0].Status().Code != codes.Unset || ticks[1].Status().Code != codes.Error {
			w.Error(ticks[0].Attributes(), ticks[0].Status(), ticks[1].Status())
		}
		links := ticks[0].Links()
		if len(links) != 1 || !links[0].SpanContext.Equal(caller.SpanContext().WithRemote(true)) || len(ticks[1].Links()) != 0 {
			w.Errorf("links %v and %v, want one to %v", links, ticks[1].Links(), caller.SpanContext())
		}
	})
}

func oneDigit(v float64) string { return fmt.Sprintf("%.1f", v) }
