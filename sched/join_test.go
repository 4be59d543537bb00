package sched_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// failsAt returns a handler that fails in the minute.
func failsAt(minute int, takes time.Duration) func(context.Context, sched.Tick) error {
	return func(_ context.Context, tick sched.Tick) error {
		time.Sleep(takes)
		if tick.Nominal.Minute() == minute {
			return errNoDisk
		}
		return nil
	}
}

// Jobs run after a failure, also one that the owner records for a process that died, or after any end.
func TestAfterFailure(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.Spread = true
		f.do(sched.Job{Name: "a", Schedule: minutely, Handler: failsAt(2, 10*time.Second), Retry: sched.Retry{Max: 1, Backoff: time.Second}}, 0)
		f.do(sched.Job{Name: "alarm", Schedule: sched.AfterFailure("a"), Overlap: sched.BufferAll{}}, 0)
		f.do(sched.Job{Name: "clean", Schedule: sched.AfterEnd("a"), Overlap: sched.BufferAll{}}, 0)
		f.do(sched.Job{Name: "calm", Schedule: sched.After("alarm"), Overlap: sched.BufferAll{}}, 0)
		f.start(0)
		f.start(0)
		f.until("00:02:15")
		f.ledger.want(t, "alarm") // another attempt follows
		f.until("00:03:05")
		f.ledger.want(t, "alarm", "00:02:00")
		f.ledger.want(t, "clean", "00:01:00", "00:02:00")
		by := f.ledger.all("a")
		for _, n := range f.nodes {
			if n.name == by[len(by)-1].By {
				n.kill()
				break
			}
		}
		f.until("00:03:58")
		f.ledger.want(t, "alarm", "00:02:00", "00:03:00")
		f.ledger.want(t, "calm", "00:02:00", "00:03:00")
		f.ledger.want(t, "clean", "00:01:00", "00:02:00", "00:03:00")
		if i := f.inspect("alarm"); i.Schedule != "@after-failure a" || i.After != "a" || i.Problem != "" {
			t.Errorf("%+v", i)
		}
		x, err := f.console().Explain(t.Context(), "alarm", clock("00:01:00"))
		if noErr(t, err); !strings.Contains(x, "not due: the job runs when a has ended without success for this instant") {
			t.Error(x)
		}
	})
}

// A job after several runs when each of them has ended for one nominal time, once, whether the jobs are
// in code or defined.
func TestAfterAll(t *testing.T) {
	for _, defined := range []bool{false, true} {
		t.Run(fmt.Sprintf("defined %t", defined), func(t *testing.T) {
			t.Parallel()
			inFleet(t, func(t *testing.T, f *fleet) {
				f.reports(0)
				f.do(sched.Job{Name: "a", Schedule: minutely}, time.Second)
				f.do(sched.Job{Name: "b", Schedule: minutely, Handler: failsAt(2, 5*time.Second)}, 0)
				f.do(sched.Job{Name: "odd", Schedule: tenMinutely}, 0)
				if !defined {
					f.do(sched.Job{Name: "all", Schedule: sched.After("a", "b"), Overlap: sched.Allow{}}, 0)
					f.do(sched.Job{Name: "one", Schedule: sched.AfterFailure("a", "b"), Overlap: sched.BufferAll{}}, 0)
					f.do(sched.Job{Name: "any", Schedule: sched.AfterEnd("a", "b", "odd"), Overlap: sched.BufferAll{}}, 0)
				}
				f.start(0)
				f.start(0)
				if defined {
					f.define(sched.Definition{Name: "all", AfterAll: []string{"a", "b"}, Kind: "report", Overlap: sched.Allow{}})
					f.define(sched.Definition{Name: "one", AfterAll: []string{"a", "b"}, AfterOn: "failure", Kind: "report", Overlap: sched.BufferAll{}})
					any := sched.Definition{Name: "any", AfterAll: []string{"a", "b", "odd"}, AfterOn: "end"}
					any.Kind, any.Overlap = "report", sched.BufferAll{}
					f.define(any)
				}
				f.until("00:01:03")
				x, err := f.console().Explain(t.Context(), "all", clock("00:01:00"))
				if noErr(t, err); !strings.Contains(x, "not due: the job runs when a, b have all succeeded for this instant, and only a ended so far") {
					t.Error(x)
				}
				f.until("00:03:02")
				f.owner().kill() // the end of a for 00:03:00 waits in etcd
				f.until("00:04:30")
				f.ledger.want(t, "all", "00:01:00", "00:04:00")
				f.ledger.want(t, "one", "00:02:00", "00:03:00")
				noErr(t, second(f.console().Backfill(t.Context(), "a", clock("00:02:00"), clock("00:02:01"), nil)))
				noErr(t, second(f.console().Backfill(t.Context(), "b", clock("00:03:00"), clock("00:03:01"), nil)))
				noErr(t, second(f.console().Backfill(t.Context(), "a", clock("00:03:00"), clock("00:03:01"), nil)))
				f.until("00:04:50")
				f.ledger.want(t, "all", "00:01:00", "00:04:00", "00:03:00")
				f.until("00:10:30")
				f.ledger.want(t, "any", "00:10:00")
				if i := f.inspect("all"); i.After != "a, b" || i.Schedule != "@after a, b" || i.Requests != 1 || i.Problem != "" {
					t.Errorf("%+v", i)
				}
				f.ledger.once(t)
			})
		})
	}
}

// Ends that wait for those of other jobs are limited.
func TestAfterAllThatNeverMeet(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		a := report("a")
		a.Schedule = "@every 1s"
		f.define(a)
		f.define(sched.Definition{Name: "b", AfterAll: []string{"a", "none"}, Kind: "report"})
		f.start(0)
		f.until("00:05:00.5")
		i := f.inspect("b")
		if i.Requests > 128 || i.Requests < 90 || !strings.Contains(i.Problem, `the job "none", after which it runs, is neither`) {
			t.Errorf("%+v", i)
		}
		const why = "more than 128 ticks waited for each other: a, none have not all ended for the same nominal times"
		if e := f.entries("b")[0]; e.Missed != 32 || !strings.HasSuffix(e.Error, why) {
			t.Errorf("%+v", e)
		}
	})
}

// Ends that wait for those of other jobs are dropped when the job is changed, in code or as a definition.
func TestAfterAllChanged(t *testing.T) {
	for _, after := range [][]string{nil, {"a"}, {"a", "b"}} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			inFleet(t, func(t *testing.T, f *fleet) {
				f.reports(0)
				f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
				f.do(sched.Job{Name: "b", Schedule: minutely}, 0)
				f.do(sched.Job{Name: "odd", Schedule: tenMinutely}, 0)
				f.do(sched.Job{Name: "code", Schedule: sched.After("odd", "a", "b"), Overlap: sched.Allow{}}, 0)
				n := f.start(0)
				d := sched.Definition{Name: "defined", AfterAll: []string{"odd", "a", "b"}, Kind: "report", Overlap: sched.Allow{}}
				d = f.define(d)
				f.until("00:03:30")
				n.stop()
				code := &f.jobs[len(f.jobs)-1]
				if d.AfterAll, code.Schedule = after, tenMinutely; after == nil {
					d.Schedule = "@every 10m"
				} else {
					code.Schedule = sched.After(after...)
				}
				f.define(d)
				f.start(0)
				f.until("00:03:50")
				f.ledger.want(t, "code")
				f.ledger.want(t, "defined")
				if left := f.under("/now/ask/"); len(left) != 0 {
					t.Errorf("left: %v", left)
				}
				f.until("00:04:10")
				if after != nil {
					f.ledger.want(t, "code", "00:04:00")
					f.ledger.want(t, "defined", "00:04:00")
				}
			})
		})
	}
}

// Ends of a backfill are as new as others that are requested now.
func TestAfterAllBackfilled(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Every(time.Second, 0)), Overlap: sched.Allow{}}, 0)
		f.do(sched.Job{Name: "b", Schedule: tenMinutely, Overlap: sched.Allow{}}, 40*time.Second)
		f.do(sched.Job{Name: "all", Schedule: sched.After("a", "b"), Overlap: sched.Allow{}}, 0)
		f.start(0)
		f.until("00:05:00.5")
		from := clock("00:00:00").Add(-10 * time.Minute)
		for _, job := range []string{"a", "b"} {
			noErr(t, second(f.console().Backfill(t.Context(), job, from, from.Add(time.Millisecond), nil)))
		}
		f.until("00:06:00")
		if runs := f.ledger.all("all"); len(runs) != 1 || !runs[0].Nominal.Equal(from) {
			t.Errorf("%v", runs)
		}
	})
}

// An owner hears that requests are gone while it decides about others of the same job.
func TestAfterAllCancelledWhileOwnerDecides(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		slow := new(atomic.Bool)
		f.onNow = func(*node) {
			if slow.Load() {
				time.Sleep(200 * time.Millisecond)
			}
		}
		f.do(sched.Job{Name: "all", Schedule: sched.After("a", "b"), Overlap: sched.BufferAll{}}, 0)
		f.start(0)
		f.until("00:01:00")
		var ops []clientv3.Op
		for i, at := range []string{"2000-01-01T00:00:10Z", "2000-01-01T00:00:20Z"} {
			for _, by := range []string{"a", "b"} {
				text := fmt.Sprintf(`{"v":1,"job":"all","id":"%s%d","by":"%[1]s","at":"%[3]s","after":"%[3]s"}`, by, i, at)
				ops = append(ops, clientv3.OpPut(f.keyOf("all", fmt.Sprint("now/ask/J/", by, i)), text))
			}
		}
		slow.Store(true)
		noErr(t, second(f.etcd.Txn(t.Context()).Then(ops...).Commit()))
		time.Sleep(800 * time.Millisecond)
		noErr(t, f.console().Cancel(t.Context(), "all", ""))
		slow.Store(false)
		f.until("00:01:30")
		if left := f.under("/now/ask/"); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
		f.ledger.want(t, "all")
	})
}

func TestAfterAllPassthrough(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		s, err := sched.New(without(t), sched.Config{Group: "default"})
		noErr(t, err)
		add := func(j sched.Job, handler func(context.Context, sched.Tick) error) {
			j.Handler = f.ledger.record("local", handler)
			noErr(t, s.Add(j))
		}
		add(sched.Job{Name: "a", Schedule: minutely}, failing(0, 0))
		add(sched.Job{Name: "b", Schedule: minutely}, failsAt(2, 0))
		add(sched.Job{Name: "all", Schedule: sched.After("a", "b")}, failing(0, 0))
		add(sched.Job{Name: "alarm", Schedule: sched.AfterFailure("b")}, failing(0, 0))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		f.until("00:03:30")
		cancel()
		noErr(t, <-ended)
		f.ledger.want(t, "all", "00:01:00", "00:03:00")
		f.ledger.want(t, "alarm", "00:02:00")
	})
}

func TestAfterAllIsChecked(t *testing.T) {
	many := make([]string, 17)
	for i := range many {
		many[i] = fmt.Sprint("a", i)
	}
	for want, d := range map[string]sched.Definition{
		"runs after 17 jobs; want 1 to 16": {AfterAll: many},
		`runs after "b" twice`:             {AfterAll: []string{"b", "b"}},
		"would run after itself":           {AfterAll: []string{"b", "a"}},
		"both After and AfterAll":          {After: "b", AfterAll: []string{"c"}},
		`AfterOn "never" is unknown`:       {After: "b", AfterOn: "never"},
		"runs after 0 jobs":                {AfterOn: "end"},
		"both a Schedule and After":        {AfterAll: []string{"b"}, Schedule: "* * * * *"},
	} {
		d.Name, d.Kind = "a", "report"
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	s, err := sched.New(without(t), sched.Config{Group: "default"})
	noErr(t, err)
	noErr(t, s.Add(sched.Job{Name: "b", Schedule: sched.After("x", "a"), Handler: failing(0, 0)}))
	if s.Add(sched.Job{Name: "a", Schedule: sched.AfterEnd("y", "b"), Handler: failing(0, 0)}) == nil {
		t.Error("a circle is accepted")
	}
	if s.Add(sched.Job{Name: "c", Schedule: sched.After(), Handler: failing(0, 0)}) == nil {
		t.Error("a job after none is accepted")
	}
}
