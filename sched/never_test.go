package sched_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
)

// A definition whose calendars leave out all that follows is reported, unless it has run.
func TestDefineNeverDue(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.start(0)
		dates := func(dates ...string) *sched.CalendarData { return &sched.CalendarData{Dates: dates} }
		for name, change := range map[string]func(*sched.Definition){
			"past":    func(d *sched.Definition) { d.Only = dates("1999-12-31") },
			"all":     func(d *sched.Definition) { d.Except = dates("01-01..12-31") },
			"today":   func(d *sched.Definition) { d.Only, d.Schedule = dates("2000-01-01"), "0 1 * * *" },
			"reboot":  func(d *sched.Definition) { d.Schedule = "@reboot" },
			"started": func(d *sched.Definition) { d.Only, d.RunOnStart = dates("1999-12-31"), true },
			"after":   func(d *sched.Definition) { d.Schedule, d.After = "", "past" },
		} {
			d := report(name)
			change(&d)
			f.define(d)
		}
		f.until("00:30:00")
		never := func() (names []string) {
			for i, err := range f.console().Jobs(t.Context()) {
				if noErr(t, err); strings.Contains(i.Problem, "no tick follows: the schedule has no instant after 2000-01-01T00:0") {
					names = append(names, i.Job)
				} else if i.Problem != "" {
					t.Errorf("%s: %s", i.Job, i.Problem)
				}
			}
			return names
		}
		if got := strings.Join(never(), " "); got != "all past" {
			t.Error(got)
		}
		f.until("01:30:00")
		f.ledger.want(t, "today", "01:00:00")
		if got := strings.Join(never(), " "); got != "all past" {
			t.Error(got)
		}
	})
}

// The alarm of a definition does not depend on a process that can run it.
func TestOverdueOfUnknownKind(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var got alarms
		f.cfg.Hooks.Overdue = got.hook
		f.start(0)
		f.until("00:20:30")
		d := report("a") // "* * * * *"
		d.Schedule, d.Overdue = "*/10 * * * *", 5*time.Minute
		f.define(d)
		f.until("00:34:30") // the tick of 00:20 is older than the definition
		got.want(t, "older than the definition", "")
		f.until("00:36:30")
		got.mu.Lock()
		defer got.mu.Unlock()
		if len(got.all) != 1 || !got.all[0].nominal.Equal(clock("00:30:00")) ||
			!strings.Contains(got.all[0].why, `not admitted: the owner of the group has no handler of kind "report"`) {
			t.Errorf("%+v", got.all)
		}
	})
}

// once is a schedule with one instant.
type once struct {
	at    time.Time
	asked *atomic.Int64 // how often
}

func (o once) Next(t time.Time) time.Time {
	o.asked.Add(1)
	if t.Before(o.at) {
		return o.at
	}
	return time.Time{}
}

func (o once) String() string { return "once" }

// The owner rests after the last tick of a schedule.
func TestRestAfterLastTick(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		asked := new(atomic.Int64)
		f.do(sched.Job{Name: "a", Schedule: once{clock("00:01:00"), asked}}, 0)
		n := f.start(0)
		f.until("00:01:01")
		before := asked.Load()
		f.until("00:01:03")
		if more := asked.Load() - before; more > 20 {
			t.Errorf("the schedule is asked %d times in two seconds", more)
		}
		if due := n.sched.Stats().NextDue; !due.IsZero() {
			t.Errorf("next due at %v", due)
		}
		f.ledger.want(t, "a", "00:01:00")
	})
}
