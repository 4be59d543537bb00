package sched_test

import (
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/etcdclaims/claims/sched/ical"
)

// An iCalendar text that takes minutes to parse delays no other definition. What became of its
// own definition meanwhile counts.
func TestDefineWhileParsing(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.cfg.ICal = ical.ParseText
		f.reports(0)
		slow := func(name, zone string) sched.Definition {
			d := report(name)
			d.Except = &sched.CalendarData{ICal: freeze, Zone: zone}
			return d
		}
		changed := f.define(slow("changed", "Europe/Berlin"))
		f.define(slow("removed", "Europe/Paris"))
		f.define(slow("kept", "UTC"))
		f.cfg.ICal = func(text, zone string) (calendar.Calendar, error) {
			time.Sleep(3 * time.Minute)
			return ical.ParseText(text, zone)
		}
		n := f.start(0)
		f.until("00:00:30")
		f.define(report("plain"))
		noErr(t, f.console().Undefine(t.Context(), "removed", sched.AnyVersion))
		changed.Except = nil
		f.define(changed)
		f.until("00:01:30")
		f.ledger.want(t, "plain", "00:01:00")
		f.ledger.want(t, "changed", "00:01:00")
		f.until("00:07:30")
		f.ledger.want(t, "removed")
		f.ledger.want(t, "plain", "00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00", "00:06:00", "00:07:00")
		f.ledger.want(t, "changed", "00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00", "00:06:00", "00:07:00")
		if i := f.inspect("changed"); i.Problem != "" || strings.Contains(i.Schedule, "EXCEPT") {
			t.Errorf("%+v", i)
		}
		if i := f.inspect("kept"); i.Problem != "" || !i.Next.Equal(clock("00:08:00")) {
			t.Errorf("%+v", i)
		}
		n.stop()
	})
}
