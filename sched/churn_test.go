package sched_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// Three definitions that would close a circle, stored at the same time: one of them is refused.
func TestDefineAfterCircleOfThree(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.start(0)
		f.until("00:00:10")
		s := f.console()
		for i := range 10 {
			names := []string{fmt.Sprint("a", i), fmt.Sprint("b", i), fmt.Sprint("c", i)}
			var wg sync.WaitGroup
			var refused atomic.Int64
			for n, name := range names {
				wg.Go(func() {
					if _, err := s.Define(t.Context(), following(name, names[(n+1)%3])); err != nil {
						refused.Add(1)
						wantErr(t, err, "would run after itself")
					}
				})
			}
			wg.Wait()
			if n := refused.Load(); n != 1 {
				t.Errorf("%d of three were refused, want 1", n)
			}
		}
	})
}

// Jobs after jobs after jobs, while owners die and first attempts fail: each success requests
// one tick of each job that follows.
func TestDefineAfterWhileOwnersDie(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.kinds = map[string]kindHandler{"report": func(_ context.Context, tick sched.Tick, _ json.RawMessage) error {
			if tick.Job == "b" && tick.Attempt == 1 {
				return errors.New("broken")
			}
			time.Sleep(2 * time.Second)
			return nil
		}}
		for range 4 {
			f.start(0)
		}
		f.until("00:00:10")
		before := map[string]string{"b": "a", "c": "a", "d": "b", "e": "d"}
		a := report("a")
		a.History = 100
		f.define(a)
		for _, name := range []string{"b", "c", "d", "e"} {
			d := following(name, before[name])
			d.History, d.Overlap = 100, sched.BufferAll{}
			d.Retry = sched.Retry{Max: 1, Backoff: 3 * time.Second}
			f.define(d)
		}
		for i := range 3 {
			f.until(fmt.Sprintf("00:%02d:02.0%d", 2*i+1, i))
			f.owner().kill()
		}
		f.until("00:12:50")
		count := func(job string, outcomes ...sched.Outcome) (n int) {
			for _, e := range f.entries(job) {
				if slices.Contains(outcomes, e.Outcome) {
					n++
				}
			}
			return n
		}
		for _, name := range []string{"b", "c", "d", "e"} {
			want := count(before[name], sched.OutcomeOK)
			if got := count(name, sched.OutcomeOK, sched.OutcomeLost); got != want || want < 9 {
				t.Errorf("%d ticks of %s after %d successes of %s: %v", got, name, want, before[name], f.history(name))
			}
		}
	})
}

// A job is removed and defined again with another schedule and other policies, again and
// again, while owners die. No tick runs twice, which the audit checks, and the last one runs.
func TestDefineAgainWhileOwnersDie(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(5 * time.Second)
		for range 5 {
			f.start(0)
		}
		f.until("00:00:10")
		schedules := []string{"@every 7s", "*/5 * * * * *", "TZ=Europe/Berlin */11 * * * * *"}
		overlaps := []sched.Overlap{sched.Skip{}, sched.Allow{}, sched.BufferOne{}, sched.CancelRunning{}}
		for i := range 30 {
			f.define(sched.Definition{
				Name: "a", Schedule: schedules[i%3], Kind: "report", RunOnStart: i%2 == 0, Overlap: overlaps[i%4], History: 1000, Guarantee: sched.Guarantee(i % 2),
			})
			time.Sleep(time.Duration(3+i%17) * time.Second)
			if i%8 == 7 {
				f.owner().kill()
			}
			noErr(t, f.console().Undefine(t.Context(), "a", sched.AnyVersion))
			if i%5 == 0 {
				time.Sleep(20 * time.Second)
				noErr(t, f.console().Forget(t.Context(), "a"))
			}
		}
		f.define(sched.Definition{Name: "a", Schedule: "@every 10s", Kind: "report", History: 1000})
		before := len(f.ledger.all("a"))
		time.Sleep(2 * time.Minute)
		if n := len(f.ledger.all("a")) - before; before < 20 || n < 11 || n > 13 {
			t.Errorf("%d runs, and %d in 2 minutes of a job that is due every 10 s", before, n)
		}
	})
}

// A definition is changed from Allow to Skip while runs are in progress: they end, and from
// then on one runs at a time.
func TestOverlapChangedDuringRuns(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(150 * time.Second)
		f.start(0)
		f.until("00:00:10")
		d := report("a")
		d.Overlap, d.History = sched.Allow{}, 100
		d = f.define(d)
		f.until("00:02:10")
		d.Overlap = sched.Skip{}
		f.define(d)
		f.until("00:12:10")
		f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:05:00", "00:08:00", "00:11:00")
	})
}

// Attempts after failures count for Retry, and those after deaths for MaxAttempts.
func TestRetriesAndDeaths(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{
			Name: "a", Schedule: calendar.Must(calendar.Every(time.Hour, time.Minute)), Guarantee: sched.AtLeastOnce, MaxStarts: 3,
			Retry: sched.Retry{Max: 4, Backoff: 5 * time.Second},
			Handler: func(ctx context.Context, tick sched.Tick) error {
				if tick.Attempt%2 == 1 {
					return errors.New("broken")
				}
				<-ctx.Done()
				return ctx.Err()
			},
		}, 0)
		for range 8 {
			f.start(0)
		}
		f.until("00:00:30")
		for range 6 {
			time.Sleep(90 * time.Second)
			f.owner().kill()
		}
		time.Sleep(5 * time.Minute)
		f.wantHistory("a", "failed 00:01:00", "failed 00:01:00", "failed 00:01:00", "lost 00:01:00")
		if n := len(f.ledger.all("a")); n != 6 {
			t.Errorf("%d attempts, want 6", n)
		}
	})
}

// Runs that do not end take up the Limit of the only process: a job that is due beside them is
// reported as overdue, waits its turn, and then runs.
func TestOverdueBehindBlockedRuns(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.Limit = 5
		var alarms, wrong atomic.Int64
		f.cfg.Hooks.Overdue = func(_ string, _ time.Time, why string) {
			if alarms.Add(1); fateOf(why) != "waiting" {
				wrong.Add(1)
			}
		}
		for i := range 15 {
			f.do(sched.Job{Name: fmt.Sprint("blocked", i), Schedule: calendar.Must(calendar.Every(24*time.Hour, time.Minute)), Timeout: 10 * time.Minute}, time.Hour)
		}
		f.do(sched.Job{Name: "urgent", Schedule: minutely, Overdue: 90 * time.Second}, 0)
		f.start(0)
		f.until("00:10:30")
		if n := len(f.ledger.all("")); n > 6 || alarms.Load() == 0 || wrong.Load() != 0 {
			t.Errorf("%d runs, %d alarms, %d of another fate", n, alarms.Load(), wrong.Load())
		}
		f.until("00:40:30")
		if got := f.ledger.nominals("urgent"); len(got) == 0 || got[len(got)-1] != "00:40:00" {
			t.Errorf("%v", got)
		}
	})
}
