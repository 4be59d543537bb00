package sched_test

import (
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
)

// oneOff is a definition that is due once.
func oneOff(name, at string) sched.Definition {
	return sched.Definition{Name: name, Schedule: "@at " + clock(at).Format(time.RFC3339), Kind: "report"}
}

// A definition of one instant runs once, and one with bounds within them. Then they have ended, and the
// same definition can be applied again.
func TestDefineBounded(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.start(0)
		first := f.define(oneOff("once", "00:02:00"))
		some := report("some")
		some.Start, some.Runs = clock("00:02:30").In(time.FixedZone("west", -3600)), 2
		some = f.define(some)
		until := report("until")
		until.End = clock("00:03:00")
		f.define(until)
		f.until("00:01:30")
		if i := f.inspect("some"); i.Ended || !i.Next.Equal(clock("00:03:00")) || len(i.Upcoming(9)) != 2 ||
			!strings.HasSuffix(i.Schedule, " ONLY period(2000-01-01T00:02:30Z.., 2 runs)") {
			t.Errorf("%+v", i)
		}
		if i := f.inspect("once"); i.Ended || !i.Next.Equal(clock("00:02:00")) {
			t.Errorf("%+v", i)
		}
		f.until("00:03:30")
		f.owner().stop()
		f.start(0)
		f.until("00:10:30")
		f.ledger.want(t, "once", "00:02:00")
		f.ledger.want(t, "some", "00:03:00", "00:04:00")
		f.ledger.want(t, "until", "00:01:00", "00:02:00", "00:03:00")
		for _, name := range []string{"once", "some", "until"} {
			if i := f.inspect(name); !i.Ended || i.Problem != "" || !i.Next.IsZero() || !i.Overdue.IsZero() || len(i.Upcoming(1)) != 0 {
				t.Errorf("%+v", i)
			}
		}
		x, err := f.console().Explain(t.Context(), "some", clock("00:05:00"))
		if noErr(t, err); !strings.Contains(x, "has a calendar, or a start or an end, that leaves this instant out") {
			t.Error(x)
		}
		for _, d := range []sched.Definition{oneOff("once", "00:02:00"), some} {
			d.Version = sched.AnyVersion
			if again := f.define(d); again.Version != first.Version && again.Version != some.Version {
				t.Errorf("%s has another version", d.Name)
			}
		}
		stored, err := f.console().Definition(t.Context(), "some")
		if noErr(t, err); !stored.Start.Equal(some.Start) || stored.Runs != 2 || !stored.End.IsZero() {
			t.Errorf("%+v", stored)
		}
	})
}

// An instant before the definition is not due. One that passes before an owner takes it up is caught up
// with.
func TestDefineOncePassed(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.until("00:00:30")
		f.define(oneOff("past", "00:00:10"))
		f.define(oneOff("late", "00:00:40"))
		strict := oneOff("strict", "00:00:40")
		strict.CatchUp = sched.SkipMissed{}
		f.define(strict)
		f.until("00:01:00")
		f.start(0)
		f.until("00:02:00")
		f.ledger.want(t, "late", "00:00:40")
		f.ledger.want(t, "past")
		f.wantHistory("strict", "missed 00:00:40")
		if i := f.inspect("past"); i.Ended || !strings.HasPrefix(i.Problem, "no tick follows") {
			t.Errorf("%+v", i)
		}
		if i := f.inspect("strict"); !i.Ended || i.Problem != "" {
			t.Errorf("%+v", i)
		}
	})
}

func TestDefineBoundedIsChecked(t *testing.T) {
	for want, d := range map[string]sched.Definition{
		"Runs needs a Start":         {Schedule: "* * * * *", Runs: 1},
		"no instant within":          {Schedule: "@at 2027-01-01T00:00:00Z", Start: time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC)},
		"Start, End and Runs need":   {After: "b", Runs: 1},
		"is not an instant; want on": {Schedule: "@at noon"},
	} {
		d.Name, d.Kind = "a", "report"
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", d, err)
		}
	}
}
