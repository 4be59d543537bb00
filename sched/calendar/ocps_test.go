package calendar_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

// The Open Cron Pattern Specification (https://github.com/open-source-cron/ocps), 1.0
// to 1.4: what an implementation must do, by the sections of its documents. Where
// this package differs on purpose, the case says so; docs/scheduling.md lists the
// differences.
func TestOCPS(t *testing.T) {
	t.Parallel()
	// same: every expression is the schedule of the first.
	same := func(exprs ...string) func(*testing.T) {
		return func(t *testing.T) {
			want := fmt.Sprint(calendar.Must(calendar.Cron(exprs[0])))
			for _, expr := range exprs[1:] {
				if s, err := calendar.Cron(expr); err != nil || fmt.Sprint(s) != want {
					t.Errorf("%q is %v, %v; want %s", expr, s, err, want)
				}
			}
		}
	}
	refused := func(exprs ...string) func(*testing.T) {
		return func(t *testing.T) {
			for _, expr := range exprs {
				if s, err := calendar.Cron(expr); err == nil {
					t.Errorf("%q is %v, want an error", expr, s)
				}
			}
		}
	}
	// due: what follows from, in the format of instant.
	due := func(expr, from string, want ...string) func(*testing.T) {
		return func(t *testing.T) {
			u := instant(t, from)
			s := calendar.Must(calendar.Cron(expr))
			for _, w := range want {
				if u = s.Next(u); u != instant(t, w) {
					t.Fatalf("%q is due at %v, want %s", expr, u, w)
				}
			}
		}
	}
	const from = "2026-01-01 00:00Z" // a Thursday
	for name, test := range map[string]func(*testing.T){
		"1.0 4.1 five fields":                same("* * * * *", "TZ=UTC * * * * *"),
		"1.0 4.1 unknown characters":         refused("a * * * *", "* * * * $", "*! * * * *", "* * * * MOON"),
		"1.0 4.1 spaces around":              same("0 5 * * *", "  0 5 * * *\t"),
		"1.0 4.1 spaces between":             same("0 5 * * *", "0   5 \t*  *\t\t*"),
		"1.0 4.2 ranges of values":           refused("60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 0 *", "* * * 13 *", "* * * * 8"),
		"1.0 4.2 names in any case":          same("0 0 * 1,12 0,6", "0 0 * jan,Dec sun,SAT"),
		"1.0 4.2 7 is Sunday":                same("0 0 * * 0", "0 0 * * 7", "0 0 * * SUN"),
		"1.0 5 list":                         due("0,15,30,45 * * * *", from, "2026-01-01 00:15Z", "2026-01-01 00:30Z"),
		"1.0 5 range":                        due("0 9-10 * * *", from, "2026-01-01 09:00Z", "2026-01-01 10:00Z", "2026-01-02 09:00Z"),
		"1.0 5 step over a range":            due("5-59/15 * * * *", from, "2026-01-01 00:05Z", "2026-01-01 00:20Z", "2026-01-01 00:35Z", "2026-01-01 00:50Z", "2026-01-01 01:05Z"),
		"1.0 5.1 union of a list":            due("0-10/5,20-30/10 * * * *", from, "2026-01-01 00:05Z", "2026-01-01 00:10Z", "2026-01-01 00:20Z", "2026-01-01 00:30Z", "2026-01-01 01:00Z"),
		"1.0 6.1 either day field":           due("0 12 1 * MON", from, "2026-01-01 12:00Z", "2026-01-05 12:00Z"),
		"1.0 6.2 step of zero":               refused("*/0 * * * *", "0-30/0 * * * *"),
		"1.0 6.2 step without a range":       refused("/30 * * * *"),
		"1.0 6.2 step after a value: other":  same("10-59/10 * * * *", "10/10 * * * *"),
		"1.0 6.2 descending range: other":    same("0 22,23,0,1 * * *", "0 22-1 * * *"),
		"1.0 6.2 impossible date: other":     refused("* * 31 2 *"),
		"1.0 6.4 time of one zone":           due("TZ=Asia/Tokyo 0 9 * * *", from, "2026-01-02 00:00Z"),
		"1.1 4.1 yearly":                     same("0 0 1 1 *", "@yearly", "@annually"),
		"1.1 4.1 monthly":                    same("0 0 1 * *", "@monthly"),
		"1.1 4.1 weekly":                     same("0 0 * * 0", "@weekly"),
		"1.1 4.1 daily":                      same("0 0 * * *", "@daily", "@midnight"),
		"1.1 4.1 hourly":                     same("0 * * * *", "@hourly"),
		"1.1 4.1 nicknames are lower case":   refused("@Yearly", "@DAILY"),
		"1.1 4.1 nicknames stand alone":      refused("@daily * * * * *", "0 @daily * * *", "@hourly 5"),
		"1.1 4.2 reboot":                     same("@reboot", "TZ=UTC @reboot"),
		"1.2 4.1 seconds":                    due("*/30 * * * * *", from, "2026-01-01 00:00:30Z", "2026-01-01 00:01:00Z"),
		"1.2 4.1 no seconds are second 0":    same("0 * * * * *", "* * * * *"),
		"1.2 4.1 nicknames are at second 0":  same("0 0 0 * * *", "@daily"),
		"1.2 4.2 year":                       due("0 15 10 * * * 2027", from, "2027-01-01 10:15Z", "2027-01-02 10:15Z"),
		"1.2 4.2 range of years":             due("0 0 12 1 1 * 2028-2029", from, "2028-01-01 12:00Z", "2029-01-01 12:00Z"),
		"1.2 4.2 list of years":              due("0 0 12 1 1 * 2027,2031", from, "2027-01-01 12:00Z", "2031-01-01 12:00Z"),
		"1.2 4.2 even years":                 due("0 0 0 1 1 * */2", from, "2028-01-01 00:00Z", "2030-01-01 00:00Z"),
		"1.2 4.2 odd years":                  due("0 0 0 1 1 * 1971-2199/2", from, "2027-01-01 00:00Z", "2029-01-01 00:00Z"),
		"1.2 4.2 six fields are seconds":     due("0 0 0 1 1 *", from, "2027-01-01 00:00Z", "2028-01-01 00:00Z"),
		"1.2 4.2 years end":                  ends("0 0 0 1 1 * 2026-2027", from, 1),
		"1.3 4 letters are upper case":       refused("0 0 l * *", "0 0 15w * *", "0 0 * * 5l", "0 0 * * 5#l"),
		"1.3 4.1 last day":                   due("0 0 L * *", from, "2026-01-31 00:00Z", "2026-02-28 00:00Z"),
		"1.3 4.1 last Friday":                due("0 0 * * 5L", from, "2026-01-30 00:00Z", "2026-02-27 00:00Z"),
		"1.3 4.1 last Friday with #":         same("0 0 * * 5L", "0 0 * * FRI#L", "0 0 * * 5#L", "0 0 * * FRIL"),
		"1.3 4.2 third Tuesday":              due("0 0 * * 2#3", from, "2026-01-20 00:00Z", "2026-02-17 00:00Z"),
		"1.3 4.2 first Monday":               due("0 0 * * MON#1", from, "2026-01-05 00:00Z"),
		"1.3 4.2 occurrences":                refused("0 0 * * 2#0", "0 0 * * 2#6"),
		"1.3 4.3 weekday itself":             due("0 12 15W * *", from, "2026-01-15 12:00Z"),
		"1.3 4.3 Saturday":                   due("0 12 15W 8 *", from, "2026-08-14 12:00Z"),
		"1.3 4.3 Sunday":                     due("0 12 15W 2 *", from, "2026-02-16 12:00Z"),
		"1.3 4.3 within the month":           due("0 12 1W 8 *", from, "2026-08-03 12:00Z"),
		"1.3 4.3 not in a range":             refused("0 12 1-15W * *"),
		"1.4 4.1.1 either by default":        due("0 12 2 * MON", from, "2026-01-02 12:00Z", "2026-01-05 12:00Z"),
		"1.4 4.1.2 plus":                     due("0 12 1 * +MON", from, "2026-06-01 12:00Z", "2027-02-01 12:00Z"),
		"1.4 4.1.2 plus in other places":     refused("+0 12 1 * MON", "0 +12 1 * MON", "0 12 +1 * MON", "0 12 1 +1 MON", "0 12 1 * MON,+TUE", "0 12 1 * ++MON", "0 12 1 * MON+", "0 0 12 1 * MON +2026"),
		"1.4 4.2 question mark is a star":    same("0 0 * * 1", "0 0 ? * 1"),
		"1.4 4.2 question mark elsewhere":    refused("? 0 * * *", "0 ? * * *", "0 0 * ? *", "0 0 0 * * * ?"),
		"1.4 4.3.1 gap: skipped by policy":   due("TZ=America/New_York GAP=skip 30 2 * * *", "2026-03-08 00:00-05:00", "2026-03-09 02:30-04:00"),
		"1.4 4.3.1 gap: other by default":    due("TZ=America/New_York 30 2 * * *", "2026-03-08 00:00-05:00", "2026-03-08 03:00-04:00"),
		"1.4 4.3.1 overlap":                  due("TZ=America/New_York 30 1 * * *", "2026-11-01 00:00-04:00", "2026-11-01 01:30-04:00", "2026-11-02 01:30-05:00"),
		"1.4 4.3.2 range of years":           due("0 0 0 1 1 * 1970,2199", "1969-06-01 00:00Z", "1970-01-01 00:00Z", "2199-01-01 00:00Z"),
		"1.4 4.3.2 years out of range":       refused("0 0 0 1 1 * 1969", "0 0 0 1 1 * 2200", "0 0 0 1 1 * 2190-2200"),
		"1.4 4.3.2 nothing beyond the range": ends("0 0 0 1 1 * 2199", "2199-01-01 00:00Z", 0),
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), test)
	}
}

// ends checks that n instants follow, and no more.
func ends(expr, from string, n int) func(*testing.T) {
	return func(t *testing.T) {
		s := calendar.Must(calendar.Cron(expr))
		u, got := instant(t, from), 0
		for u = s.Next(u); !u.IsZero() && got <= n; u = s.Next(u) {
			got++
		}
		if got != n {
			t.Errorf("%q is due %d times after %s, or more; want %d", expr, got, from, n)
		}
		var never time.Time
		if u := s.Next(time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)); u != never {
			t.Errorf("%q is due at %v", expr, u)
		}
	}
}
