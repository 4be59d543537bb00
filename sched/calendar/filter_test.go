package calendar_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

func dates(t *testing.T, zone string, dates ...string) calendar.Calendar {
	t.Helper()
	c, err := calendar.Dates(zone, dates...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Except and Only together are the schedule. A model that visits every minute decides to
// which of them an instant belongs, also where clocks change at midnight.
func TestFiltersAgainstDates(t *testing.T) {
	for zone, day := range map[string]string{
		"UTC":               "2026-03-29",
		"Europe/Berlin":     "2026-10-25", // 25 hours
		"America/Sao_Paulo": "2018-11-04", // begins at 01:00
		"America/Havana":    "2026-11-01", // shows 00:30 twice
		"Asia/Beirut":       "2023-03-25",
		"Pacific/Apia":      "2011-12-29", // the next day is missing
		"Africa/Casablanca": "2026-02-15",
	} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		s := calendar.Must(calendar.Every(10*time.Minute, 0))
		noon, err := time.ParseInLocation(time.DateOnly+" 15:04", day+" 12:00", loc)
		if err != nil {
			t.Fatal(err)
		}
		from, to := noon.Add(-72*time.Hour).UTC(), noon.Add(72*time.Hour).UTC()
		c := dates(t, zone, day, "2000-01-01")
		var except, only []time.Time
		for at := range calendar.Between(s, from, to) {
			if at.In(loc).Format(time.DateOnly) == day {
				only = append(only, at)
			} else {
				except = append(except, at)
			}
		}
		if got := slices.Collect(calendar.Between(calendar.Except(s, c), from, to)); !slices.Equal(got, except) {
			t.Errorf("%s: Except has %d instants, want %d", zone, len(got), len(except))
		}
		if got := slices.Collect(calendar.Between(calendar.Only(s, c), from, to)); !slices.Equal(got, only) || len(got) == 0 {
			t.Errorf("%s: Only has %d instants, want %d", zone, len(got), len(only))
		}
	}
}

func TestDates(t *testing.T) {
	c := dates(t, "UTC", "12-25", "02-29", "2026-05-01")
	for day, want := range map[string]bool{"2026-12-25": true, "2031-12-25": true, "2028-02-29": true, "2027-03-01": false, "2026-05-01": true, "2027-05-01": false} {
		at, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := c.Covers(at.Add(13 * time.Hour)); got != want {
			t.Errorf("%s: %v", day, got)
		}
	}
	for zone, date := range map[string]string{"Local": "2026-01-01", "Mars/Base": "2026-01-01", "UTC": "2026-02-30", "Europe/Berlin": "1-1"} {
		if _, err := calendar.Dates(zone, date); err == nil {
			t.Errorf("Dates(%s, %s) is accepted", zone, date)
		}
	}
	if _, err := calendar.Days("Local", func(time.Time) bool { return true }); err == nil {
		t.Error("Days(Local) is accepted")
	}
	if _, err := calendar.Days("UTC", nil); err == nil {
		t.Error("Days(nil) is accepted")
	}
}

// daysOf returns the first days of a month, as dates of each year.
func daysOf(month string, n int) (days []string) {
	for i := range n {
		days = append(days, fmt.Sprintf("%s-%02d", month, i+1))
	}
	return days
}

// A range is the same calendar as its days. Those of each year include 29 February.
func TestDateRanges(t *testing.T) {
	for text, days := range map[string][]string{
		"2026-12-30..2027-01-02": {"2026-12-30", "2026-12-31", "2027-01-01", "2027-01-02"},
		"12-30..01-02":           {"12-30", "12-31", "01-01", "01-02"},
		"02-28..03-01":           {"02-28", "02-29", "03-01"},
		"2026-02-28..2026-03-01": {"2026-02-28", "2026-03-01"},
		"12-25..12-25":           {"12-25"},
		"12-30..03-01":           slices.Concat([]string{"12-30", "12-31", "02-29", "03-01"}, daysOf("01", 31), daysOf("02", 28)),
		"12-31..02-29":           slices.Concat([]string{"12-31", "02-29"}, daysOf("01", 31), daysOf("02", 28)),
	} {
		is, want := dates(t, "UTC", text), dates(t, "UTC", days...)
		if fmt.Sprint(is) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", text, is, want)
		}
		from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for at := range calendar.Between(calendar.Must(calendar.Cron("@daily")), from, from.AddDate(3, 0, 0)) {
			got, _ := is.Covers(at)
			if covered, _ := want.Covers(at); got != covered {
				t.Errorf("%s at %v: %t", text, at, got)
			}
		}
	}
	for text, says := range map[string]string{
		"12-26..12-32": "is not a date", "12-26..": "one end only", "..12-26": "one end only", "12-26..2026-12-27": "one end only", "..": "is not a date",
		"12-24...12-26": "one end only", "2026-12-26..2026-12-25": "ends before it begins", "2000-01-01..2027-05-19": "have 10001 days; the limit is 10000",
	} {
		if _, err := calendar.Dates("UTC", text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	if _, err := calendar.Dates("UTC", "2000-01-01..2013-09-07", "2013-09-08..2027-05-19"); err == nil {
		t.Error("two ranges exceed the limit together")
	}
	if _, err := calendar.Dates("UTC", "2000-01-01..2027-05-18"); err != nil {
		t.Error(err)
	}
}

// The text changes with the calendar, and only with it. A calendar without text has none.
func TestFilterText(t *testing.T) {
	s := calendar.Must(calendar.Every(time.Hour, 0))
	text := func(s calendar.Schedule) string { return fmt.Sprint(s.(fmt.Stringer)) }
	is := text(calendar.Except(s, dates(t, "UTC", "12-26", "12-25", "12-26")))
	if is != "@every 1h0m0s EXCEPT dates(UTC: 12-25,12-26)" {
		t.Error(is)
	}
	var many []string
	for d := range 20 {
		many = append(many, fmt.Sprintf("2026-03-%02d", d+1))
	}
	long, longer := text(calendar.Only(s, dates(t, "UTC", many...))), text(calendar.Only(s, dates(t, "UTC", append(many, "12-25")...)))
	if long == longer || len(long) > 100 || !strings.Contains(long, "ONLY dates(UTC: 20 dates ") {
		t.Error(long, longer)
	}
	c, err := calendar.Days("UTC", func(day time.Time) bool { return day.Day() == 1 })
	if err != nil {
		t.Fatal(err)
	}
	if _, named := calendar.Except(s, c).(fmt.Stringer); named {
		t.Error("a schedule has a text although its calendar has none")
	}
}

// A search ends where nothing is left, also for a schedule of each second.
func TestFilterIsBounded(t *testing.T) {
	all, err := calendar.Days("Europe/Berlin", func(time.Time) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, s := range []calendar.Schedule{calendar.Must(calendar.Every(time.Second, 0)), calendar.Must(calendar.Cron("@yearly"))} {
		if next := calendar.Except(s, all).Next(now); !next.IsZero() {
			t.Error(next)
		}
		if next := calendar.Only(s, dates(t, "UTC")).Next(now); !next.IsZero() {
			t.Error(next)
		}
		if next := calendar.Only(s, all).Next(now); next != s.Next(now) {
			t.Error(next)
		}
	}
	leap, err := calendar.Days("UTC", func(day time.Time) bool { return day.Weekday() != time.Sunday })
	if err != nil {
		t.Fatal(err)
	}
	s := calendar.Except(calendar.Must(calendar.Cron("0 0 29 2 *")), leap)
	if next := s.Next(now); next.Format(time.DateOnly) != "2032-02-29" {
		t.Error(next)
	}
	if next := s.Next(next(t, s, now)); next.Format(time.DateOnly) != "2060-02-29" {
		t.Error(next)
	}
}

func next(t *testing.T, s calendar.Schedule, at time.Time) time.Time {
	t.Helper()
	n := s.Next(at)
	if n.IsZero() {
		t.Fatal("there is no next instant")
	}
	return n
}

func ExampleExcept() {
	holidays, err := calendar.Dates("Europe/Berlin", "12-25", "12-26", "2026-12-24")
	if err != nil {
		fmt.Println(err)
		return
	}
	s := calendar.Except(calendar.Must(calendar.Cron("30 2 * * *", calendar.In("Europe/Berlin"))), holidays)
	fmt.Println(s.Next(time.Date(2026, time.December, 23, 12, 0, 0, 0, time.UTC)))
	// Output: 2026-12-27 01:30:00 +0000 UTC
}

func ExampleOnly() {
	lastDays, err := calendar.Days("UTC", func(day time.Time) bool { return day.AddDate(0, 0, 1).Day() == 1 })
	if err != nil {
		fmt.Println(err)
		return
	}
	s := calendar.Only(calendar.Must(calendar.Every(6*time.Hour, 0)), lastDays)
	fmt.Println(s.Next(time.Date(2026, time.February, 3, 0, 0, 0, 0, time.UTC)))
	// Output: 2026-02-28 00:00:00 +0000 UTC
}
