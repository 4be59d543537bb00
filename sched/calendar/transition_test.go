package calendar_test

import (
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

func instant(t *testing.T, s string) time.Time {
	t.Helper()
	for _, layout := range []string{"2006-01-02 15:04Z07:00", "2006-01-02 15:04:05Z07:00"} {
		if u, err := time.Parse(layout, s); err == nil {
			return u.UTC()
		}
	}
	t.Fatalf("%q is not an instant", s)
	return time.Time{}
}

// Each line was worked out by hand from what zdump says of the transition: all
// that is due after the first instant and not after the second.
func TestTransitions(t *testing.T) {
	t.Parallel()
	const gapSkip, last, both = "GAP=skip ", "FOLD=last ", "FOLD=both "
	f := func(expr, from, to string, due ...string) {
		t.Helper()
		s, err := calendar.Cron(expr)
		if err != nil {
			t.Errorf("%v", err)
			return
		}
		var want []time.Time
		for _, d := range due {
			want = append(want, instant(t, d))
		}
		got := slices.Collect(calendar.Between(s, instant(t, from), instant(t, to)))
		if !slices.Equal(got, want) {
			t.Errorf("%q from %s to %s:\n got %v\nwant %v", expr, from, to, got, want)
		}
	}

	// New York, 8 March 2026: 02:00 EST is 03:00 EDT.
	const ny = "TZ=America/New_York "
	from, to := "2026-03-07 12:00-05:00", "2026-03-09 12:00-04:00"
	f(ny+"30 2 * * *", from, to, "2026-03-08 03:00-04:00", "2026-03-09 02:30-04:00")
	f(ny+gapSkip+"30 2 * * *", from, to, "2026-03-09 02:30-04:00")
	f(ny+"0 2 * * *", from, to, "2026-03-08 03:00-04:00", "2026-03-09 02:00-04:00")
	f(ny+"59 1 * * *", from, to, "2026-03-08 01:59-05:00", "2026-03-09 01:59-04:00")
	f(ny+"0 3 * * *", from, to, "2026-03-08 03:00-04:00", "2026-03-09 03:00-04:00")
	f(ny+"30 2 * * *", "2026-03-08 01:59:59-05:00", to, "2026-03-08 03:00-04:00", "2026-03-09 02:30-04:00")
	f(ny+"30 2 * * *", "2026-03-08 03:00-04:00", to, "2026-03-09 02:30-04:00")
	from, to = "2026-03-08 00:30-05:00", "2026-03-08 04:10-04:00"
	f(ny+"0,20,40 2 * * *", from, to, "2026-03-08 03:00-04:00")                          // three left out, due once
	f(ny+"*/20 2 * * *", from, to)                                                       // it follows the clock
	f(ny+"0,30 2,3 * * *", from, to, "2026-03-08 03:00-04:00", "2026-03-08 03:30-04:00") // due anyway: not twice
	f(ny+"30 1-3 * * *", from, to, "2026-03-08 01:30-05:00", "2026-03-08 03:00-04:00", "2026-03-08 03:30-04:00")
	f(ny+gapSkip+"30 1-3 * * *", from, to, "2026-03-08 01:30-05:00", "2026-03-08 03:30-04:00")
	f(ny+"30 * * * *", from, to, "2026-03-08 01:30-05:00", "2026-03-08 03:30-04:00")
	f(ny+"30 */2 * * *", from, to) // 00:30 is from itself, there is no 02:30, 04:30 is later
	f(ny+"30 0-23/2 * * *", from, to, "2026-03-08 03:00-04:00")
	f(ny+"30 2 * * MON", from, to) // the day that matches has no gap
	f(ny+"30 2 8 3 SUN", from, to, "2026-03-08 03:00-04:00")

	// New York, 1 November 2026: 02:00 EDT is 01:00 EST.
	from, to = "2026-10-31 12:00-04:00", "2026-11-02 12:00-05:00"
	f(ny+"30 1 * * *", from, to, "2026-11-01 01:30-04:00", "2026-11-02 01:30-05:00")
	f(ny+last+"30 1 * * *", from, to, "2026-11-01 01:30-05:00", "2026-11-02 01:30-05:00")
	f(ny+both+"30 1 * * *", from, to, "2026-11-01 01:30-04:00", "2026-11-01 01:30-05:00", "2026-11-02 01:30-05:00")
	f(ny+"0 2 * * *", from, to, "2026-11-01 02:00-05:00", "2026-11-02 02:00-05:00") // shown once
	f(ny+"0 1 * * *", from, to, "2026-11-01 01:00-04:00", "2026-11-02 01:00-05:00")
	f(ny+last+"0 1 * * *", from, to, "2026-11-01 01:00-05:00", "2026-11-02 01:00-05:00")
	from, to = "2026-11-01 00:50-04:00", "2026-11-01 02:10-05:00"
	f(ny+"30 * * * *", from, to, "2026-11-01 01:30-04:00", "2026-11-01 01:30-05:00")
	f(ny+"0,30 1 * * *", from, to, "2026-11-01 01:00-04:00", "2026-11-01 01:30-04:00")
	f(ny+"*/30 1 * * *", from, to, "2026-11-01 01:00-04:00", "2026-11-01 01:30-04:00", "2026-11-01 01:00-05:00", "2026-11-01 01:30-05:00")
	f(ny+last+"0,30 1 * * *", from, to, "2026-11-01 01:00-05:00", "2026-11-01 01:30-05:00")
	f(ny+last+"30 0-23 * * *", from, to, "2026-11-01 01:30-05:00")
	// Asked in the middle of the fold.
	f(ny+"30 1 * * *", "2026-11-01 01:30-04:00", to)
	f(ny+"30 1 * * *", "2026-11-01 01:10-05:00", to)
	f(ny+last+"30 1 * * *", "2026-11-01 01:30-04:00", to, "2026-11-01 01:30-05:00")

	// Midnight left out: it is 01:00.
	f("TZ=America/Sao_Paulo 0 0 * * *", "2018-11-03 12:00-03:00", "2018-11-05 12:00-02:00", "2018-11-04 01:00-02:00", "2018-11-05 00:00-02:00")
	f("TZ=America/Sao_Paulo GAP=skip @daily", "2018-11-03 12:00-03:00", "2018-11-05 12:00-02:00", "2018-11-05 00:00-02:00")
	f("TZ=Africa/Cairo 0 0 * * *", "2026-04-23 12:00+02:00", "2026-04-25 12:00+03:00", "2026-04-24 01:00+03:00", "2026-04-25 00:00+03:00")
	f("TZ=Africa/Cairo GAP=skip 0 0 * * *", "2026-04-23 12:00+02:00", "2026-04-25 12:00+03:00", "2026-04-25 00:00+03:00")
	f("TZ=Africa/Cairo 0 0 * * FRI", "2026-04-23 12:00+02:00", "2026-04-30 12:00+03:00", "2026-04-24 01:00+03:00")
	f("TZ=Africa/Cairo 0 0 24 4 *", "2026-04-23 12:00+02:00", "2026-04-30 12:00+03:00", "2026-04-24 01:00+03:00")
	f("TZ=Africa/Cairo 0 0 23 4 *", "2026-04-23 12:00+02:00", "2026-04-30 12:00+03:00")
	// Midnight that is put back into the day before: 23:30 comes twice on it, midnight once.
	f("TZ=America/Sao_Paulo 30 23 * * SAT", "2018-02-17 12:00-02:00", "2018-02-18 12:00-03:00", "2018-02-17 23:30-02:00")
	f("TZ=America/Sao_Paulo FOLD=last 30 23 * * SAT", "2018-02-17 12:00-02:00", "2018-02-18 12:00-03:00", "2018-02-17 23:30-03:00")
	f("TZ=America/Sao_Paulo 0 0 * * *", "2018-02-17 12:00-02:00", "2018-02-18 12:00-03:00", "2018-02-18 00:00-03:00")

	// Lord Howe moves by half an hour: 02:00 is 02:30 on 4 October, 01:30 on 5 April.
	const lordHowe = "TZ=Australia/Lord_Howe "
	from, to = "2026-10-03 12:00+10:30", "2026-10-04 12:00+11:00"
	f(lordHowe+"15 2 * * *", from, to, "2026-10-04 02:30+11:00")
	f(lordHowe+"0 2 * * *", from, to, "2026-10-04 02:30+11:00")
	f(lordHowe+"30 2 * * *", from, to, "2026-10-04 02:30+11:00")
	f(lordHowe+"*/15 2 * * *", from, to, "2026-10-04 02:30+11:00", "2026-10-04 02:45+11:00")
	f(lordHowe+gapSkip+"15 2 * * *", from, to)
	f(lordHowe+"15 * * * *", "2026-10-04 01:00+10:30", "2026-10-04 04:00+11:00", "2026-10-04 01:15+10:30", "2026-10-04 03:15+11:00")
	from, to = "2026-04-04 12:00+11:00", "2026-04-05 12:00+10:30"
	f(lordHowe+"45 1 * * *", from, to, "2026-04-05 01:45+11:00")
	f(lordHowe+last+"45 1 * * *", from, to, "2026-04-05 01:45+10:30")
	f(lordHowe+both+"45 1 * * *", from, to, "2026-04-05 01:45+11:00", "2026-04-05 01:45+10:30")
	f(lordHowe+both+"15 1 * * *", from, to, "2026-04-05 01:15+11:00")
	f(lordHowe+both+"0 2 * * *", from, to, "2026-04-05 02:00+10:30")

	// Samoa left out the whole of 30 December 2011.
	const apia = "TZ=Pacific/Apia "
	from, to = "2011-12-29 00:00-10:00", "2012-01-01 00:00+14:00"
	f(apia+"0 12 * * *", from, to, "2011-12-29 12:00-10:00", "2011-12-31 00:00+14:00", "2011-12-31 12:00+14:00")
	f(apia+gapSkip+"0 12 * * *", from, to, "2011-12-29 12:00-10:00", "2011-12-31 12:00+14:00")
	f(apia+"0 0 * * *", from, to, "2011-12-31 00:00+14:00", "2012-01-01 00:00+14:00") // that of the 30th and that of the 31st
	f(apia+"0 9 30 * *", from, to, "2011-12-31 00:00+14:00")
	f(apia+"0 9,17 * * FRI", from, to, "2011-12-31 00:00+14:00")
	f(apia+"0 9 31 * *", from, to, "2011-12-31 09:00+14:00")
	f(apia+"0 */12 * * *", from, to, "2011-12-29 12:00-10:00", "2011-12-31 00:00+14:00", "2011-12-31 12:00+14:00", "2012-01-01 00:00+14:00")

	// Dublin: summer time is standard time, and winter time is put back from it.
	const dublin = "TZ=Europe/Dublin "
	f(dublin+"30 1 * * *", "2026-03-28 12:00Z", "2026-03-29 12:00Z", "2026-03-29 02:00+01:00")
	f(dublin+gapSkip+"30 1 * * *", "2026-03-28 12:00Z", "2026-03-29 12:00Z")
	f(dublin+"30 1 * * *", "2026-10-24 12:00Z", "2026-10-25 12:00Z", "2026-10-25 01:30+01:00")
	f(dublin+last+"30 1 * * *", "2026-10-24 12:00Z", "2026-10-25 12:00Z", "2026-10-25 01:30+00:00")

	// Troll moves by two hours: 01:00 is 03:00, and back.
	const troll = "TZ=Antarctica/Troll "
	f(troll+"30 1,2 * * *", "2026-03-28 12:00Z", "2026-03-29 12:00Z", "2026-03-29 03:00+02:00")
	f(troll+"30 1,2 * * *", "2026-10-24 12:00Z", "2026-10-25 12:00Z", "2026-10-25 01:30+02:00", "2026-10-25 02:30+02:00")
	f(troll+last+"30 1,2 * * *", "2026-10-24 12:00Z", "2026-10-25 12:00Z", "2026-10-25 01:30+00:00", "2026-10-25 02:30+00:00")
	f(troll+both+"30 2 * * *", "2026-10-24 12:00Z", "2026-10-25 12:00Z", "2026-10-25 02:30+02:00", "2026-10-25 02:30+00:00")

	// Casablanca leaves its summer time for Ramadan: the fold comes before the gap.
	f("TZ=Africa/Casablanca 30 2 * * SUN", "2026-02-14 12:00Z", "2026-03-23 12:00Z",
		"2026-02-15 02:30+01:00", "2026-02-22 02:30+00:00", "2026-03-01 02:30+00:00", "2026-03-08 02:30+00:00", "2026-03-15 02:30+00:00", "2026-03-22 03:00+01:00")

	// Offsets with seconds. New York, 18 November 1883: 12:03:58 is 12:00:00.
	from, to = "1883-11-18 16:56:00Z", "1883-11-18 17:05:00Z"
	f(ny+"0 2 12 * * *", from, to, "1883-11-18 16:58:02Z")
	f(ny+last+"0 2 12 * * *", from, to, "1883-11-18 17:02:00Z")
	f(ny+both+"57,58 3 12 * * *", from, to, "1883-11-18 16:59:59Z", "1883-11-18 17:03:57Z", "1883-11-18 17:03:58Z")
	// Monrovia, 7 January 1972: 00:00:00 is 00:44:30.
	from, to = "1972-01-06 12:00Z", "1972-01-07 12:00Z"
	f("TZ=Africa/Monrovia 0 0 * * *", from, to, "1972-01-07 00:44:30Z")
	f("TZ=Africa/Monrovia 29,30,31 44 0 * * *", from, to, "1972-01-07 00:44:30Z", "1972-01-07 00:44:31Z")
	f("TZ=Africa/Monrovia GAP=skip 29 44 0 * * *", from, to)
	// Juneau, 19 October 1867, 15:33:32: it becomes 15:33:32 of the 18th, so that a day is shown twice.
	const juneau = "TZ=America/Juneau "
	from, to = "1867-10-17 00:00Z", "1867-10-21 00:00Z"
	f(juneau+"0 12 * * *", from, to, "1867-10-17 20:57:41Z", "1867-10-18 20:57:41Z", "1867-10-20 20:57:41Z")
	f(juneau+last+"0 12 * * *", from, to, "1867-10-17 20:57:41Z", "1867-10-19 20:57:41Z", "1867-10-20 20:57:41Z")
	f(juneau+both+"0 12 * * *", from, to, "1867-10-17 20:57:41Z", "1867-10-18 20:57:41Z", "1867-10-19 20:57:41Z", "1867-10-20 20:57:41Z")
}

// Rules of today hold for years to which no table reaches.
func TestFarFuture(t *testing.T) {
	t.Parallel()
	f := func(expr, from, want string) {
		t.Helper()
		got := calendar.Must(calendar.Cron(expr)).Next(instant(t, from))
		if want == "" && got.IsZero() {
			return
		}
		if want == "" || got != instant(t, want) {
			t.Errorf("%q after %s: %v, want %q", expr, from, got, want)
		}
	}
	// The second Sunday of March 2380 is the 9th, the first of November the 2nd.
	f("TZ=America/New_York 30 2 * * *", "2380-03-09 00:00-05:00", "2380-03-09 03:00-04:00")
	f("TZ=America/New_York FOLD=last 30 1 * * *", "2380-11-02 00:00-04:00", "2380-11-02 01:30-05:00")
	f("TZ=America/New_York 30 1 * * *", "2380-11-02 00:00-04:00", "2380-11-02 01:30-04:00")
	// The last day of a leap year is where the zone's own bounds are a day off.
	f("TZ=America/New_York 0 9 31 12 *", "2380-12-31 00:00-05:00", "2380-12-31 09:00-05:00")
	f("TZ=America/New_York 0 9 1 1 *", "2380-12-31 12:00-05:00", "2381-01-01 09:00-05:00")
	f("TZ=America/New_York 0 12 1 7 *", "2380-12-31 12:00-05:00", "2381-07-01 12:00-04:00")
	// 29 February is missing in 2100, 2200 and 2300, and falls on one day of the week every 28 or 40 years.
	f("0 0 29 2 *", "2096-03-01 00:00Z", "2104-02-29 00:00Z")
	f("0 0 * 2 MON#5", "2072-03-01 00:00Z", "2112-02-29 00:00Z")
	f("0 0 29 2 *", "2396-02-29 00:00Z", "")
	f("TZ=Pacific/Kiritimati 0 0 1 1 *", "2399-06-01 00:00Z", "2399-12-31 10:00Z") // 2400 in Kiritimati only
	f("TZ=Pacific/Pago_Pago 0 23 31 12 *", "2399-06-01 00:00Z", "")
}
