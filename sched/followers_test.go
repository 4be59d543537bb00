package sched_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// following is a definition that runs after another job.
func following(name, before string) sched.Definition {
	return sched.Definition{Name: name, After: before, Kind: "report", Overlap: sched.BufferAll{}}
}

// A definition runs after another one, after a job in code, and a job in code after it.
func TestDefineAfter(t *testing.T) {
	for _, spread := range []bool{false, true} {
		t.Run(fmt.Sprintf("spread %t", spread), func(t *testing.T) {
			t.Parallel()
			inFleet(t, func(t *testing.T, f *fleet) {
				f.cfg.Spread = spread
				f.do(sched.Job{Name: "code", Schedule: minutely, Handler: func(_ context.Context, tick sched.Tick) error {
					if tick.Nominal.Minute() == 2 {
						return errNoDisk
					}
					return nil
				}}, 0)
				f.do(sched.Job{Name: "last", Schedule: sched.After("b"), Overlap: sched.BufferAll{}}, 0)
				f.reports(time.Second)
				f.start(0)
				f.start(0)
				a := f.define(following("a", "code"))
				b := f.define(following("b", "a"))
				f.until("00:03:30")
				for _, name := range []string{"a", "b", "last"} {
					f.ledger.want(t, name, "00:01:00", "00:03:00")
				}
				if d := f.ledger.all("b")[0]; d.Manual || d.ID() != "default/b/after/after/"+d.Nominal.Format(time.RFC3339) {
					t.Errorf("%v", d)
				}
				if i := f.inspect("b"); i.After != "a" || i.Schedule != "@after a" || i.Problem != "" || !i.Next.IsZero() || i.Version != b.Version {
					t.Errorf("%+v", i)
				}
				x, err := f.console().Explain(t.Context(), "a", clock("00:02:00"))
				if noErr(t, err); !strings.Contains(x, "not due: the job runs when code has succeeded") {
					t.Errorf("%v", x)
				}

				// b runs after code too, and a by a schedule of its own.
				b.After = "code"
				b = f.define(b)
				a.After, a.Schedule = "", "*/2 * * * *"
				a = f.define(a)
				f.until("00:04:30")
				f.ledger.want(t, "a", "00:01:00", "00:03:00", "00:04:00")
				f.ledger.want(t, "b", "00:01:00", "00:03:00", "00:04:00")
				noErr(t, f.console().Undefine(t.Context(), "b", b.Version))
				noErr(t, f.console().Undefine(t.Context(), "a", a.Version))
				f.until("00:06:30")
				f.ledger.want(t, "b", "00:01:00", "00:03:00", "00:04:00")
				f.ledger.want(t, "last", "00:01:00", "00:03:00", "00:04:00")
				noErr(t, f.console().Forget(t.Context(), "b"))
				for _, k := range f.under("/now/ask/") {
					t.Errorf("left: %+v", k)
				}
			})
		})
	}
}

// The other job can come later, and go.
func TestDefineAfterUnknown(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.start(0)
		f.define(following("b", "a"))
		f.until("00:00:05")
		const problem = `the job "a", after which it runs, is neither defined nor registered by an owner`
		if i := f.inspect("b"); i.Problem != problem || i.After != "a" {
			t.Errorf("%+v", i)
		}
		a := f.define(report("a"))
		f.until("00:01:30")
		if i := f.inspect("b"); i.Problem != "" {
			t.Error(i.Problem)
		}
		f.ledger.want(t, "b", "00:01:00")
		noErr(t, f.console().Undefine(t.Context(), "a", a.Version))
		if i := f.inspect("b"); i.Problem != problem {
			t.Errorf("%+v", i)
		}
		all := 0
		for i, err := range f.console().Jobs(t.Context()) {
			if noErr(t, err); i.Problem != "" {
				all++
			}
		}
		if all != 2 { // and that of the removed job
			t.Errorf("%d problems", all)
		}
		f.define(report("a"))
		f.until("00:02:30")
		f.ledger.want(t, "b", "00:01:00", "00:02:00")
	})
}

// Jobs do not run after themselves.
func TestDefineAfterCircle(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		core, logs := observer.New(zap.ErrorLevel)
		f.cfg.Logger = zap.New(core)
		f.reports(0)
		f.do(sched.Job{Name: "code", Schedule: sched.After("c")}, 0)
		n := f.start(0)
		f.until("00:00:05")
		f.define(following("b", "a"))
		f.define(following("c", "b"))
		for d, says := range map[string]string{"c": "a after c after b after a", "code": "a after code after c after b after a"} {
			_, err := f.console().Define(t.Context(), following("a", d))
			wantErr(t, err, `sched: define job "a": the job would run after itself: `+says)
		}

		// Two at a time: one of them is refused.
		send := f.late(func(s *sched.Scheduler) error {
			_, err := s.Define(context.Background(), following("x", "y"))
			return err
		})
		f.define(following("y", "x"))
		wantErr(t, send(), "x after y after x")

		// A circle that a job in code closes later.
		f.define(following("z", "later"))
		noErr(t, n.sched.Add(sched.Job{Name: "later", Schedule: sched.After("z"), Handler: f.ledger.record("code", failing(0, 0))}))
		f.until("00:00:20")
		noErr(t, second(f.console().RunNow(t.Context(), "z")))
		f.until("00:01:00")
		if z, later := len(f.ledger.all("z")), len(f.ledger.all("later")); z != 1 || later != 1 {
			t.Errorf("%d runs, and %d of the job after it", z, later)
		}
		if got := logs.FilterMessageSnippet("in a circle").Len(); got != 1 {
			t.Errorf("%d log lines", got)
		}
	})
}

func TestDefineAfterLimit(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		for i := range 32 {
			f.define(following(fmt.Sprint("b", i), "a"))
		}
		_, err := f.console().Define(t.Context(), following("c", "a"))
		wantErr(t, err, `32 jobs run after "a" already, which is the limit`)
		d := following("b0", "a")
		d.Timeout, d.Version = time.Second, sched.AnyVersion
		f.define(d) // a change is still possible
		f.define(report("a"))
		f.reports(0)
		f.start(0)
		f.until("00:01:30")
		for i := range 32 {
			f.ledger.want(t, fmt.Sprint("b", i), "00:01:00")
		}
	})
}

// A success in the first moments of a process, or in its last, is one too.
func TestDefineAfterAtTheEdges(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Cron("@reboot")), Handler: func(ctx context.Context, tick sched.Tick) error {
			if tick.Attempt == 1 && strings.Contains(tick.ID(), "manual") {
				<-ctx.Done()
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}}, 0)
		f.define(following("b", "a"))
		n := f.start(0)
		f.until("00:00:10")
		if got := len(f.ledger.all("b")); got != 1 {
			t.Errorf("%d runs after the first one", got)
		}
		noErr(t, second(f.console().RunNow(t.Context(), "a")))
		f.until("00:00:20")
		n.stop()
		f.start(0)
		f.until("00:00:40")
		if got := len(f.ledger.all("b")); got != 2 {
			t.Errorf("%d runs after two", got)
		}
	})
}

// A scheduler that runs again knows only the definitions that it has read since.
func TestDefineAfterBetweenRuns(t *testing.T) {
	for _, spread := range []bool{false, true} {
		caseInFleet(t, fmt.Sprintf("spread %t", spread), func(t *testing.T, f *fleet) {
			f.cfg.Spread = spread
			f.reports(0)
			f.do(sched.Job{Name: "a", Schedule: minutely, Retry: sched.Retry{Max: 1, Backoff: 50 * time.Second}, Handler: failing(1, 0)}, 0)
			n := f.start(0)
			f.until("00:01:20") // the second attempt waits until 01:25 at least, and 01:50 at most
			n.stop()
			f.define(following("b", "a"))
			f.until("00:01:52")
			n.host.Inject(claimtest.Fault{On: claimtest.Range, Times: -1, DelayRequest: 3 * time.Second}) // reads of all keys
			n.run()
			f.until("00:02:20")
			f.wantHistory("a", "failed 00:01:00", "ok 00:01:00", "failed 00:02:00")
			f.wantHistory("b", "ok 00:01:00")
		})
	}
}

// A process that has not heard of the removal requests nothing.
func TestDefineAfterRemoved(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(7500 * time.Millisecond)
		n := f.start(0)
		n.deafens().Store(true)
		f.define(report("a"))
		b := f.define(following("b", "a"))
		f.until("00:01:06")
		for !strings.HasSuffix(time.Now().Format("05.0"), "6.5") {
			time.Sleep(100 * time.Millisecond)
		}
		noErr(t, f.console().Undefine(t.Context(), "b", b.Version))
		f.until("00:01:30")
		if got := f.history("a"); len(got) != 1 || got[0] != "ok 00:01:00" {
			t.Errorf("%v", got)
		}
		if n := f.puts("/now/ask/"); n != 0 {
			t.Errorf("%d requests", n)
		}
		f.define(following("b", "a"))
		f.until("00:01:50")
		f.ledger.want(t, "b")
	})
}

// A request of another version of the definition.
func TestDefineAfterOutdated(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.define(report("a"))
		f.define(report("z"))
		b := f.define(following("b", "a"))
		n := f.start(0)
		f.until("00:00:10")
		n.stop()
		ask := func(by string, nominal string, defined int64) {
			text := fmt.Sprintf(`{"v":1,"job":"b","id":"%s","by":"%s","at":"2000-01-01T%sZ","after":"2000-01-01T%[3]sZ","defined":"%[4]d"}`, by+nominal, by, nominal, defined)
			_, err := f.etcd.Put(t.Context(), f.keyOf("b", "now/ask/J/"+by+nominal), text)
			noErr(t, err)
		}
		ask("a", "00:00:01", b.Version)
		b.After = "z"
		b = f.define(b)
		ask("z", "00:00:02", b.Version)
		ask("z", "00:00:03", b.Version+1000) // the owner has not heard of that version
		f.start(0)
		f.until("00:00:40")
		f.ledger.want(t, "b", "00:00:02")
		if left := f.under("/now/ask/"); len(left) != 1 || !strings.Contains(left[0].value, "00:00:03") {
			t.Errorf("%+v", left)
		}
		for range 1000 {
			_, err := f.etcd.Put(t.Context(), "x", "")
			noErr(t, err)
		}
		b.Timeout = time.Minute
		f.define(b)
		f.until("00:00:50")
		f.ledger.want(t, "b", "00:00:02", "00:00:03")
	})
}

// A success and the tick after it are one change, whatever is lost or dies in between.
func TestDefineAfterUnderFaults(t *testing.T) {
	for i, fault := range []claimtest.Fault{
		{On: claimtest.Other, LoseReply: true, Times: 2},
		{On: claimtest.Other, LoseRequest: true, Times: 2},
		{}, // the process is killed
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			inFleet(t, func(t *testing.T, f *fleet) {
				f.reports(time.Second)
				a := report("a")
				a.Schedule = "*/10 * * * *"
				f.define(a)
				f.define(following("b", "a"))
				n := f.start(0)
				f.until("00:10:00.5")
				if fault.On != "" {
					n.host.Inject(fault)
				} else {
					f.until("00:10:01.001")
					n.kill()
					f.start(0)
				}
				f.until("00:15:00")
				a1, b1 := f.history("a"), f.history("b")
				if len(a1) != 1 || len(b1) > 1 || (a1[0] == "ok 00:10:00") != (len(b1) == 1) || a1[0] != "ok 00:10:00" && fault.On != "" {
					t.Errorf("%v, %v", a1, b1)
				}
				f.ledger.once(t)
			})
		})
	}
}

func TestAfterWithCalendar(t *testing.T) {
	s, err := sched.New(without(t), sched.Config{Group: "default"})
	noErr(t, err)
	days, err := calendar.Dates("UTC", "12-25")
	noErr(t, err)
	wantErr(t, s.Add(sched.Job{Name: "b", Schedule: calendar.Except(sched.After("a"), days), Handler: failing(0, 0)}), "do not apply to After")
	wantErr(t, s.Add(sched.Job{Name: "b", Schedule: calendar.Only(calendar.Except(sched.After("a"), days), days), Handler: failing(0, 0)}), "do not apply to After")
}

// A definition is shadowed by a job in code, also for After.
func TestDefineAfterAndCode(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.kinds = map[string]kindHandler{"report": func(context.Context, sched.Tick, json.RawMessage) error { return errors.New("not this") }}
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		f.define(following("b", "a"))
		f.do(sched.Job{Name: "b", Schedule: sched.After("a")}, 0)
		f.start(0)
		f.until("00:02:30")
		f.wantHistory("b", "ok 00:01:00", "ok 00:02:00")
	})
}

// A process that reads a change before it hears of it requests the ticks of the change.
func TestDefineAfterChangedAtOnce(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.define(report("a"))
		f.define(report("z"))
		n := f.start(0)
		f.until("00:00:11")
		n.host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, DelayRequest: 500 * time.Millisecond})
		b := f.define(following("b", "a"))
		time.Sleep(200 * time.Millisecond)
		b.After = "z"
		f.define(b)
		time.Sleep(2 * time.Second)
		n.host.RemoveFaults()
		f.until("00:02:30")
		f.wantHistory("b", "ok 00:01:00", "ok 00:02:00")
		for _, d := range f.ledger.all("b") {
			if d.ID() != "default/b/after/"+d.Nominal.Format(time.RFC3339) {
				t.Errorf("%v", d)
			}
		}
	})
}
