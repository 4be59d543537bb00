// Package conformance_test holds packages of the SDK against the libraries that
// they fit together with.
package conformance_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
	"github.com/riverqueue/river"
	"github.com/robfig/cron/v3"
)

// Each library's schedules are a schedule of the others.
var (
	_ calendar.Schedule      = cron.Schedule(nil)
	_ calendar.Schedule      = river.PeriodicSchedule(nil)
	_ cron.Schedule          = calendar.Schedule(nil)
	_ river.PeriodicSchedule = calendar.Schedule(nil)
)

var zones = []string{
	"UTC", "America/New_York", "America/Los_Angeles", "America/St_Johns", "America/Sao_Paulo", "America/Havana", "America/Nuuk",
	"Europe/London", "Europe/Dublin", "Europe/Berlin", "Africa/Cairo", "Africa/Casablanca", "Asia/Tehran", "Asia/Kathmandu",
	"Asia/Tokyo", "Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Apia", "Pacific/Auckland", "Pacific/Chatham",
}

var fields = []string{
	"* * * * *", "*/5 * * * *", "30 2 * * *", "0 0 * * *", "30 1 * * *", "0 */2 * * *", "15,45 9-17 * * 1-5", "5/15 0-23/3 * * *",
	"0 0 1 * *", "0 12 31 * *", "0 0 29 2 *", "0 6 * * SUN", "0 6 13 * FRI", "0 6 1-7 * *", "20 4 1 JAN,jul *",
	"0 22 * 6-9 MON-FRI/2", "@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually",
}

// parser reads five fields, or six, as ours does.
var parser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// quiet reports whether no clock of the zone is changed within two days of t:
// elsewhere robfig/cron is known to be wrong.
func quiet(t time.Time, loc *time.Location) bool {
	const near = 48 * time.Hour
	_, before := t.Add(-near).In(loc).Zone()
	_, at := t.In(loc).Zone()
	_, after := t.Add(near).In(loc).Zone()
	return before == at && at == after
}

// agree compares what is due after random instants of ten years, where neither
// the question nor any of the answers is near a change of clocks.
func agree(t *testing.T, rng *rand.Rand, expr, zone string, n int) (compared int) {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatalf("%v", err)
	}
	theirs, err := parser.Parse("TZ=" + zone + " " + expr)
	if err != nil {
		t.Fatalf("robfig refuses %q: %v", expr, err)
	}
	ours, err := calendar.Cron("TZ=" + zone + " " + expr)
	if err != nil {
		t.Fatalf("%v", err)
	}
	start := time.Date(2018, 1, 1, 0, 0, 0, 0, time.UTC)
	for range n {
		from := start.Add(time.Duration(rng.Int64N(10 * 365 * 24 * int64(time.Hour))))
		want, got := theirs.Next(from), ours.Next(from)
		if !quiet(from, loc) || !quiet(want, loc) || !quiet(got, loc) {
			continue
		}
		compared++
		if !got.Equal(want) {
			t.Fatalf("TZ=%s %s: after %v comes %v, says robfig %v", zone, expr, from.In(loc), got.In(loc), want.In(loc))
		}
	}
	return compared
}

func TestAgreesWithRobfig(t *testing.T) {
	t.Parallel()
	for i, zone := range zones {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			compared := 0
			for _, expr := range fields {
				compared += agree(t, rng, expr, zone, 200)
			}
			for range 200 {
				compared += agree(t, rng, random(rng), zone, 10)
			}
			if compared < 3000 {
				t.Errorf("only %d instants were compared", compared)
			}
		})
	}
}

// random draws an expression that means the same to both: without 7 and ranges
// over the end, which robfig has not, and without a star and a step for days,
// which it counts as no star.
func random(rng *rand.Rand) string {
	item := func(lo, hi int, star bool) string {
		a, b := lo+rng.IntN(hi-lo+1), lo+rng.IntN(hi-lo+1)
		a, b = min(a, b), max(a, b)
		step := 1 + rng.IntN(hi-lo+1)
		switch form := rng.IntN(5); {
		case form == 0:
			return fmt.Sprintf("%d-%d", a, b)
		case form == 1:
			return fmt.Sprintf("%d-%d/%d", a, b, step)
		case form == 2:
			return fmt.Sprintf("%d/%d", a, step)
		case form == 3 && star:
			return fmt.Sprintf("*/%d", step)
		}
		return fmt.Sprint(a)
	}
	field := func(lo, hi int, star bool) string {
		if rng.IntN(3) == 0 {
			return "*"
		}
		items := []string{item(lo, hi, star)}
		for rng.IntN(2) == 0 {
			items = append(items, item(lo, hi, star))
		}
		return strings.Join(items, ",")
	}
	return strings.Join([]string{
		field(0, 59, true), field(0, 59, true), field(0, 23, true),
		// Up to 28, so that every month has the day: robfig looks five years ahead at most.
		field(1, 28, false), field(1, 12, true), field(0, 6, false),
	}, " ")
}

// What the package's documentation says of robfig/cron. If this fails, mend
// the text.
func TestRobfigAtTransitions(t *testing.T) {
	t.Parallel()
	f := func(expr, from, to string, theirs, ours int) {
		t.Helper()
		a, err := time.Parse(time.RFC3339, from)
		if err != nil {
			t.Fatalf("%v", err)
		}
		b, err := time.Parse(time.RFC3339, to)
		if err != nil {
			t.Fatalf("%v", err)
		}
		their, err := parser.Parse(expr)
		if err != nil {
			t.Fatalf("%v", err)
		}
		for _, s := range []struct {
			name string
			calendar.Schedule
			want int
		}{{"robfig", their, theirs}, {"sched", calendar.Must(calendar.Cron(expr)), ours}} {
			n := 0
			for range calendar.Between(s, a, b) {
				n++
			}
			if n != s.want {
				t.Errorf("%s: %q is due %d times, want %d", s.name, expr, n, s.want)
			}
		}
	}
	f("TZ=America/New_York 30 2 * * *", "2026-03-08T00:00:00-05:00", "2026-03-08T23:00:00-04:00", 0, 1)
	f("TZ=America/New_York 30 1 * * *", "2026-11-01T00:00:00-04:00", "2026-11-01T23:00:00-05:00", 2, 1)
	f("TZ=America/Sao_Paulo 0 0 * * *", "2018-11-03T12:00:00-03:00", "2018-11-04T23:00:00-02:00", 0, 1)
	f("TZ=Africa/Cairo 0 0 * * *", "2026-04-23T12:00:00+02:00", "2026-04-24T23:00:00+03:00", 0, 1)
	f("TZ=Australia/Lord_Howe 15 2 * * *", "2026-10-03T12:00:00+10:30", "2026-10-04T12:00:00+11:00", 0, 1)
}
