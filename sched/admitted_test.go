package sched_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A job that the owner does not have, and another process has, as in a deployment: its state
// and warnings of that process report it. When that process is the owner, they end.
func TestOwnerWithoutTheJob(t *testing.T) {
	for _, registered := range []bool{true, false} {
		inFleet(t, func(t *testing.T, f *fleet) {
			core, logs := observer.New(zap.InfoLevel)
			f.cfg.Logger = zap.New(core)
			slow := sched.Job{Name: "slow", Schedule: calendar.Must(calendar.Every(10*time.Second, 0)), Jitter: time.Second}
			if registered {
				f.do(slow, 0)
				f.start(0)
				f.until("00:00:25")
				f.nodes[0].stop()
				f.jobs = nil
			}
			f.do(sched.Job{Name: "other", Schedule: minutely}, 0)
			f.do(sched.Job{Name: "of the owner", Schedule: minutely}, 0) // so it does not hand over
			f.start(0)
			f.until("00:00:30")
			w := f.owner()
			f.jobs = f.jobs[:1]
			f.do(slow, 0)
			v := f.start(0)
			f.until("00:00:49")
			if registered {
				if i := f.inspect("slow"); i.Problem != "" || !i.Unadmitted.IsZero() {
					t.Errorf("within the owner's time: %v", i)
				}
			}
			f.until("00:09:00")
			if registered {
				want := "due since 2000-01-01T00:00:30Z; the owner " + w.name + " of the group has not admitted it"
				if i := f.inspect("slow"); !strings.HasPrefix(i.Problem, want) || i.Unadmitted != clock("00:00:30") {
					t.Errorf("%v; want %q", i, want)
				}
				for i, err := range f.console().Jobs(t.Context()) {
					if err != nil || (i.Problem != "") != (i.Job == "slow") {
						t.Errorf("%v, %v", i, err)
					}
				}
			}
			warned := logs.FilterField(zap.Strings("jobs", []string{"slow"})).FilterLevelExact(zap.WarnLevel)
			if n := warned.Len(); n < 6 || n > 8 || len(v.sched.Problems()) != 1 {
				t.Errorf("registered %v: %d warnings, %q", registered, n, v.sched.Problems())
			}
			w.stop()
			f.until("00:12:00")
			if n := logs.FilterMessage("jobs of this process owned again").Len(); n != 1 || len(v.sched.Problems()) != 0 {
				t.Errorf("registered %v: %d ends of that logged, %q", registered, n, v.sched.Problems())
			}
			if i := f.inspect("slow"); i.Problem != "" || !v.sched.IsOwner() {
				t.Errorf("after the take-over: %v", i)
			}
			v.stop()
			f.until("00:13:00")
			if i := f.inspect("slow"); !strings.HasSuffix(i.Problem, "the group has no owner") {
				t.Errorf("without an owner: %v", i)
			}
		})
	}
}

// Nothing is reported of ticks that begin late because of their jitter, of paused jobs, of
// those that follow another one, and after a take-over.
func TestTicksAdmittedInTime(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		core, logs := observer.New(zap.WarnLevel)
		f.cfg.Logger = zap.New(core)
		f.do(sched.Job{Name: "jitter", Schedule: calendar.Must(calendar.Every(time.Hour, 0)), Jitter: 50 * time.Minute}, 0)
		f.do(sched.Job{Name: "paused", Schedule: minutely}, 0)
		f.do(sched.Job{Name: "well", Schedule: minutely}, 0)
		f.do(sched.Job{Name: "after", Schedule: sched.After("well")}, 0)
		f.start(0)
		f.start(0)
		f.until("00:00:30")
		noErr(t, f.console().Pause(t.Context(), "paused", ""))
		for m := 10; m < 120; m += 10 {
			f.until(fmt.Sprintf("%02d:%02d:30", m/60, m%60))
			if m == 60 {
				f.owner().kill()
				f.start(0)
				time.Sleep(20 * time.Second)
			}
			for i, err := range f.console().Jobs(t.Context()) {
				if err != nil || i.Problem != "" {
					t.Errorf("%v, %v", i, err)
				}
			}
		}
		if all := logs.FilterMessageSnippet("jobs not run").All(); len(all) > 0 {
			t.Errorf("%v", all)
		}
	})
}

// in9999 is how a schedule of another package says never.
type in9999 struct{}

func (in9999) String() string { return "never" }

func (in9999) Next(t time.Time) time.Time {
	if at := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC); at.After(t) {
		return at
	}
	return time.Time{}
}

// A tick that is due in a distant year is not one that was not admitted.
func TestDistantTickIsNotLate(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: in9999{}, Overdue: time.Hour}, 0)
		n := f.start(0)
		f.until("00:05:00")
		if i, err := n.sched.Inspect(t.Context(), "a"); err != nil || i.Problem != "" || !i.Unadmitted.IsZero() || i.Next.Year() != 9999 {
			t.Errorf("%v, %v", i, err)
		}
	})
}
