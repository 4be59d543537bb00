package sched_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// Two services with one prefix and one group: the jobs of one do not run. Its log has a warning
// each minute that names Config.Group, whenever its ticks are due, and Problems has it, until
// its own process is the owner.
func TestTwoServicesInOneGroup(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		core, logs := observer.New(zap.InfoLevel)
		f.cfg.Logger = zap.New(core)
		f.do(sched.Job{Name: "invoices", Schedule: minutely}, 0)
		billing := f.start(0)
		f.until("00:00:10")
		f.jobs = nil
		daily := calendar.Must(calendar.Cron("0 12 * * *"))
		f.do(sched.Job{Name: "reports", Schedule: daily}, 0)
		f.do(sched.Job{Name: "hourly", Schedule: calendar.Must(calendar.Every(time.Hour, 0))}, 0)
		reports := f.start(0)
		const warning = "jobs not run by the owner of the group"
		warnings := func() []observer.LoggedEntry {
			return logs.FilterMessage(warning).FilterLevelExact(zap.WarnLevel).All()
		}
		f.until("00:02:30")
		if n := len(warnings()); n != 2 {
			t.Fatalf("%d warnings", n)
		}
		fields := warnings()[0].ContextMap()
		if text, _ := fields["problem"].(string); !strings.Contains(text, "give each service its own Config.Group") {
			t.Errorf("%v", fields)
		}
		if fields["group"] != "default" || fields["owner"] != billing.name || fields["count"] != int64(2) || fields["key"] != "sched/default/owner" {
			t.Errorf("%v", fields)
		}
		problems := reports.sched.Problems()
		if len(problems) != 1 || !strings.Contains(problems[0], "the owner "+billing.name) || !strings.Contains(problems[0], "hourly, reports") || !strings.Contains(problems[0], "Config.Group") {
			t.Errorf("%q", problems)
		}
		if p := billing.sched.Problems(); len(p) != 0 {
			t.Errorf("the owner has the problems %q", p)
		}
		f.until("00:12:30") // the times between
		all := warnings()
		if len(all) < 11 || len(all) > 13 {
			t.Errorf("%d warnings in 12 minutes", len(all))
		}
		if slices.ContainsFunc(all[1:], func(e observer.LoggedEntry) bool { return e.Time.Before(all[0].Time) }) {
			t.Error("out of order")
		}
		billing.stop()
		f.until("00:14:30")
		if p := reports.sched.Problems(); len(p) != 0 || !reports.sched.IsOwner() {
			t.Errorf("after the take-over: %q", p)
		}
		if n := logs.FilterMessage("jobs of this process owned again").Len(); n != 1 {
			t.Errorf("the end is logged %d times", n)
		}
		seen := len(warnings())
		f.until("00:20:30")
		if n := len(warnings()); n != seen {
			t.Errorf("%d warnings after the end", n-seen)
		}
		reports.stop()
	})
}

// An old process that nobody has ended runs its own schedule of a job for ever. The new ones do not
// stay silent about that: their logs have a warning each minute, and Problems has it.
func TestTwoVersionsOfAJob(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		core, logs := observer.New(zap.InfoLevel)
		f.cfg.Logger = zap.New(core)
		same := sched.Job{Name: "same", Schedule: calendar.Must(calendar.Every(time.Hour, 0)), Revision: "1"}
		f.do(sched.Job{Name: "moved", Schedule: calendar.Must(calendar.Every(time.Hour, 0))}, 0)
		f.do(sched.Job{Name: "revised", Schedule: minutely, Revision: "1"}, 0)
		f.do(same, 0)
		old := f.start(0)
		f.until("00:00:10")
		f.jobs = nil
		f.do(sched.Job{Name: "moved", Schedule: minutely}, 0)
		f.do(sched.Job{Name: "revised", Schedule: minutely, Revision: "2"}, 0)
		f.do(same, 0)
		renewed := f.start(0)
		f.until("00:05:30")
		warnings := logs.FilterMessage("jobs registered in another version").All()
		if len(warnings) < 4 || len(warnings) > 5 {
			t.Fatalf("%d warnings", len(warnings))
		}
		if f := warnings[0].ContextMap(); f["owner"] != old.name || f["count"] != int64(2) || f["key"] != "sched/default/owner" {
			t.Errorf("%v", f)
		}
		problems := renewed.sched.Problems()
		want := "the owner " + old.name + ` of group "default" does not run this version of 2 jobs of this process: ` +
			`moved (registered at 2000-01-01T00:00:00Z by the owner: schedule "@every 1h0m0s"; here: schedule "@every 1m0s"), ` +
			`revised (registered at 2000-01-01T00:00:00Z by the owner: revision "1", schedule "@every 1m0s"; here: revision "2", schedule "@every 1m0s"); ` +
			"end the processes of the older version, if no deployment does so"
		if len(problems) != 1 || problems[0] != want || warnings[0].ContextMap()["problem"] != want {
			t.Errorf("%q; want %q", problems, want)
		}
		if p := old.sched.Problems(); len(p) != 0 {
			t.Errorf("the owner has the problems %q", p)
		}
		old.stop()
		f.until("00:07:30")
		if p := renewed.sched.Problems(); len(p) != 0 || !renewed.sched.IsOwner() {
			t.Errorf("after the take-over: %q", p)
		}
		if n := logs.FilterMessage("jobs of this process owned again").Len(); n != 1 {
			t.Errorf("the end is logged %d times", n)
		}
		renewed.stop()
	})
}

// A registration stays when its owner is gone. The next owner, which lacks the job, is not named as the one that
// registered the other version.
func TestVersionOfAnEarlierOwner(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		hourly := calendar.Must(calendar.Every(time.Hour, 0))
		f.do(sched.Job{Name: "revised", Schedule: hourly, Revision: "1"}, 0)
		old := f.start(0)
		f.until("00:00:10")
		f.jobs = nil
		f.do(sched.Job{Name: "other", Schedule: minutely}, 0)
		lacks := f.start(0)
		f.until("00:00:20")
		f.jobs = nil
		f.do(sched.Job{Name: "revised", Schedule: hourly, Revision: "2"}, 0)
		renewed := f.start(0)
		f.until("00:00:30")
		old.stop()
		f.until("00:05:30")
		problems := renewed.sched.Problems()
		if len(problems) != 1 || !strings.Contains(problems[0], "the owner "+lacks.name+" ") ||
			!strings.Contains(problems[0], `by an earlier owner; this one may not have the job: revision "1"`) {
			t.Errorf("%q", problems)
		}
		lacks.stop()
		f.until("00:07:30")
		if p := renewed.sched.Problems(); len(p) != 0 {
			t.Errorf("after the take-over: %q", p)
		}
		renewed.stop()
	})
}

// Processes that have the same jobs are in no conflict, however they come and go.
func TestOneServiceIsNoConflict(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		core, logs := observer.New(zap.WarnLevel)
		f.cfg.Logger = zap.New(core)
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Cron("0 12 * * *"))}, 0)
		for range 3 {
			f.start(0)
		}
		f.until("00:05:00")
		f.owner().kill()
		f.start(0)
		f.until("00:15:00")
		for _, n := range f.nodes[1:] {
			if p := n.sched.Problems(); len(p) != 0 {
				t.Errorf("%s: %q", n.name, p)
			}
		}
		if all := logs.FilterField(zap.String("key", "sched/default/owner")).FilterMessageSnippet("jobs not run").All(); len(all) > 0 {
			t.Errorf("%v", all)
		}
	})
}
