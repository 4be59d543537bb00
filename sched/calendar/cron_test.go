package calendar_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

func TestCronString(t *testing.T) {
	t.Parallel()
	const utc = "TZ=UTC GAP=fire FOLD=first "
	f := func(expr, want string, options ...calendar.CronOption) {
		t.Helper()
		s, err := calendar.Cron(expr, options...)
		if err != nil {
			t.Errorf("%v", err)
			return
		}
		if got := fmt.Sprint(s); got != want {
			t.Errorf("%q is %q, want %q", expr, got, want)
		}
		if again, err := calendar.Cron(want); err != nil || fmt.Sprint(again) != want {
			t.Errorf("%q becomes %v, %v when it is read again", want, again, err)
		}
	}
	// Spellings of one schedule.
	for _, expr := range []string{
		"30 2 * * 1-5", "0 30 2 * * MON-FRI", "  30\t02 ? * mon,tue-thu,5 ", "30 2 ? * Mon-Fri", "30,30 2 * 1-12 1,2,3,4,5",
		"CRON_TZ=UTC 30 2 * * 1-5", "TZ=UTC GAP=fire 30 2 * */1 1-5",
	} {
		f(expr, utc+"0 30 2 * * 1-5")
	}
	f("* * * * *", utc+"0 * * * * *")
	f("* * * * * *", utc+"* * * * * *")
	f("*/15 * * * *", utc+"0 */15 * * * *")
	f("0,15,30,45 * * * *", utc+"0 0,15,30,45 * * * *") // not a star: in a named hour it names times
	f("0-59 2 * * *", utc+"0 0-59 2 * * *")
	f("0,15,30,45 * * * * *", utc+"*/15 * * * * *") // a star of seconds has no meaning of its own
	f("5/15 * * * *", utc+"0 5,20,35,50 * * * *")
	f("*/60 */24 */31 */12 */7", utc+"0 */60 */24 */31 1 */7")
	f("5-50/20 * * * *", utc+"0 5,25,45 * * * *")
	f("0 22-2 * * *", utc+"0 0 0-2,22,23 * * *")
	f("0 22-3/2 * * *", utc+"0 0 0,2,22 * * *")
	f("0 0 30-2 * *", utc+"0 0 0 1,2,30,31 * *")
	f("0 0 * NOV-FEB *", utc+"0 0 0 * 1,2,11,12 *")
	f("0 0 * * FRI-MON", utc+"0 0 0 * * 0,1,5,6")
	f("0 0 * * 5-7", utc+"0 0 0 * * 0,5,6")
	f("0 0 * * 7", utc+"0 0 0 * * 0")
	f("0 0 * * 7-2", utc+"0 0 0 * * 0-2")
	f("0 0 * * 1-7/2", utc+"0 0 0 * * 0,1,3,5")
	f("0 0 * * 0-7", utc+"0 0 0 * * 0-6")
	f("0 0 * * SUN-SAT", utc+"0 0 0 * * 0-6") // not a star: with a day of the month it would be every day
	f("0 0-23 * * *", utc+"0 0 0-23 * * *")   // nor here: it names hours
	f("0 */2,5 * * *", utc+"0 0 */2,5 * * *")
	f("0 5,*/2 * * *", utc+"0 0 0,2,4-6,8,10,12,14,16,18,20,22 * * *")
	f("0 */1 * * *", utc+"0 0 * * * *")
	f("0 0 L * *", utc+"0 0 0 L * *")
	f("0 0 LW,L-3,15W,1,L-3W * *", utc+"0 0 0 1,L-3,15W,LW,L-3W * *")
	f("0 0 * * FRIL,5L,5#L,friL,fri#L,FRI#2,7#1,0L", utc+"0 0 0 * * 0L,5L,0#1,5#2")
	f("0 0 *,L * *", utc+"0 0 0 *,L * *")
	// Both day fields.
	f("0 0 13 * +FRI", utc+"0 0 0 13 * +5")
	f("0 0 1-7 * +MON,7#L", utc+"0 0 0 1-7 * +1,0L")
	f("0 0 13 * +*", utc+"0 0 0 13 * *")
	f("0 0 * * +5", utc+"0 0 0 * * 5")
	// Years.
	f("0 0 0 1 1 * 2026", utc+"0 0 0 1 1 * 2026")
	f("0 0 0 1 1 * 2030,2026-2028,2027", utc+"0 0 0 1 1 * 2026-2028,2030")
	f("0 0 0 1 1 * 2190/3", utc+"0 0 0 1 1 * 2190,2193,2196,2199")
	f("0 0 0 1 1 * 1970-2199", utc+"0 0 0 1 1 * 1970-2199") // schedules have earlier years and later ones
	f("0 0 0 1 1 * *", utc+"0 0 0 1 1 *")
	f("0 0 0 29 2 * 2000-2100", utc+"0 0 0 29 2 * 2000-2100")
	// Names.
	f("@reboot", "@reboot")
	f("TZ=Asia/Tokyo @reboot", "@reboot")
	f("@hourly", utc+"0 0 * * * *")
	f("@daily", utc+"0 0 0 * * *")
	f("@midnight", utc+"0 0 0 * * *")
	f("@weekly", utc+"0 0 0 * * 0")
	f("@monthly", utc+"0 0 0 1 * *")
	f("@yearly", utc+"0 0 0 1 1 *")
	f("@annually", utc+"0 0 0 1 1 *")
	f("@every 90s", "@every 1m30s")
	f("@every 1h 5m", "@every 1h0m0s +5m0s")
	f("@every 1h -5m", "@every 1h0m0s +55m0s")
	f("TZ=Europe/Berlin @every 1h", "@every 1h0m0s")
	// Zone and policies: options, prefixes, and both.
	f("0 0 * * *", "TZ=Africa/Cairo GAP=skip FOLD=both 0 0 0 * * *", calendar.In("Africa/Cairo"), calendar.GapSkip, calendar.FoldBoth)
	f("FOLD=last GAP=skip CRON_TZ=Africa/Cairo @daily", "TZ=Africa/Cairo GAP=skip FOLD=last 0 0 0 * * *")
	f("TZ=Asia/Tokyo GAP=fire @daily", "TZ=Asia/Tokyo GAP=fire FOLD=last 0 0 0 * * *", calendar.In("Africa/Cairo"), calendar.GapSkip, calendar.FoldLast)
}

func TestCronRefuses(t *testing.T) {
	t.Parallel()
	f := func(expr, field string, column int, problem string) {
		t.Helper()
		s, err := calendar.Cron(expr)
		var e *calendar.ExprError
		if !errors.As(err, &e) || s != nil {
			t.Errorf("%q is %v, %v; want an ExprError", expr, s, err)
			return
		}
		if e.Expr != expr || e.Field != field || e.Column != column || !strings.Contains(e.Problem, problem) {
			t.Errorf("%q: %s, column %d: %s\nwant %s, column %d: %s", expr, e.Field, e.Column, e.Problem, field, column, problem)
		}
		if !strings.HasPrefix(err.Error(), "calendar: cron ") || !strings.Contains(err.Error(), e.Problem) {
			t.Errorf("%q: message %q", expr, err)
		}
	}
	f("", "", 1, "the expression has no fields")
	f("  ", "", 3, "the expression has no fields")
	f("TZ=UTC", "", 7, "the expression has no fields")
	f("* * * *", "", 1, "4 fields; want five")
	f("hourly", "", 1, "1 field; want five")
	f(" 0 0 0 1 1 * 2026 1", "", 2, "8 fields; want five")
	f("0 0 0 1 1 * 1969", "year", 13, `"1969" is not allowed; want 1970-2199`)
	f("0 0 0 1 1 * 2026,2200", "year", 18, `"2200" is not allowed`)
	f("0 0 0 1 1 * 2030-2026", "year", 13, "ends before it begins")
	f("0 0 0 1 1 * */231", "year", 15, "is not a step; want 1-230")
	f("0 0 0 1 1 * ?", "year", 13, `"?" is not allowed`)
	f("0 0 0 29 2 * 2025-2027", "day of month", 7, "no day in the given months and years ever matches")
	f("0 0 +1 * MON", "day of month", 5, `"+1" is not allowed`)
	f("0 0 1 * MON,+TUE", "day of week", 13, `"+TUE" is not allowed`)
	f("0 0 1 * ++MON", "day of week", 10, `"+MON" is not allowed`)
	f("0 0 1 * +", "day of week", 10, "an item of the list is empty")
	f("0 0 l * *", "day of month", 5, `"l" is not allowed`)
	f("0 0 15w * *", "day of month", 5, `"15w" is not allowed`)
	f("0 0 * * 5l", "day of week", 9, `"5l" is not allowed`)
	f("0 0 * * 5#l", "day of week", 11, `"l" is not allowed after #; want 1-5 or L`)
	f("@Weekly", "", 1, "in lower case")
	f("@reboot 1", "", 1, "or more fields follow it")
	f("60 * * * *", "minute", 1, `"60" is not allowed; want 0-59`)
	f("-1 * * * *", "minute", 1, `"-1" is not a range`)
	f("+1 * * * *", "minute", 1, `"+1"`)
	f("1.5 * * * *", "minute", 1, `"1.5"`)
	f("99999999999999999999 * * * *", "minute", 1, "want 0-59")
	f("60 * * * * *", "second", 1, "want 0-59")
	f("* 24 * * *", "hour", 3, `"24" is not allowed; want 0-23`)
	f("* * 0 * *", "day of month", 5, `"0" is not allowed; want 1-31`)
	f("* * 32 * *", "day of month", 5, "want 1-31")
	f("* * * 0 *", "month", 7, "want 1-12 or JAN-DEC")
	f("* * * JUX *", "month", 7, `"JUX"`)
	f("* * * MON *", "month", 7, `"MON"`)
	f("* * * * 8", "day of week", 9, "want 0-7")
	f("* * * * TUES", "day of week", 9, `"TUES"`)
	f("0 0 1,,2 * *", "day of month", 7, "an item of the list is empty")
	f(", * * * *", "minute", 1, "an item of the list is empty")
	f("1, * * * *", "minute", 3, "an item of the list is empty")
	f("1-2-3 * * * *", "minute", 3, `"2-3" is not allowed`)
	f("5,1- * * * *", "minute", 3, `"1-" is not a range`)
	f("/5 * * * *", "minute", 1, `"" is not allowed`)
	f("10,1-70 * * * *", "minute", 6, `"70" is not allowed`)
	f("*/0 * * * *", "minute", 3, `"0" is not a step; want 1-60`)
	f("*/61 * * * *", "minute", 3, "want 1-60")
	f("*/90 * * * *", "minute", 3, "want 1-60")
	f("*/ * * * *", "minute", 3, `"" is not a step`)
	f("*/-1 * * * *", "minute", 3, `"-1" is not a step`)
	f("*/2/3 * * * *", "minute", 3, `"2/3" is not a step`)
	f("* */25 * * *", "hour", 5, "want 1-24")
	f("** * * * *", "minute", 1, `"**"`)
	f("*-5 * * * *", "minute", 1, `"*" is not allowed`)
	f("? * * * *", "minute", 1, `"?"`)
	f("* ? * * *", "hour", 3, `"?"`)
	f("* * ?/2 * *", "day of month", 5, `"?"`)
	f("* * ?,1 * *", "day of month", 5, `"?"`)
	f("L * * * *", "minute", 1, `"L"`)
	f("* * L-0 * *", "day of month", 5, "L-1 to L-30")
	f("* * L-31 * *", "day of month", 5, "L-1 to L-30")
	f("* * L3 * *", "day of month", 5, "L-1 to L-30")
	f("* * L/2 * *", "day of month", 5, "L-1 to L-30")
	f("* * W * *", "day of month", 5, "1W-31W")
	f("* * 0W * *", "day of month", 5, "1W-31W")
	f("* * 32W * *", "day of month", 5, "1W-31W")
	f("* * 1-15W * *", "day of month", 5, "1W-31W")
	f("* * 5L * *", "day of month", 5, `"5L"`)
	f("* * * * L", "day of week", 9, "as in 5L for the last Friday")
	f("* * * * 8L", "day of week", 9, `"8"`)
	f("* * * * 5#0", "day of week", 11, "want 1-5")
	f("* * * * 5#6", "day of week", 11, "want 1-5")
	f("* * * * 5#", "day of week", 11, "want 1-5")
	f("* * * * #2", "day of week", 9, `""`)
	f("* * * * 5#2L", "day of week", 9, `"5#2"`)
	f("0 0 30 2 *", "day of month", 5, "no day in the given months")
	f("0 0 31 4,6,9,11 *", "day of month", 5, "no day in the given months")
	f("0 0 0 30,31 2 *", "day of month", 7, "no day in the given months")
	f("TZ=UTC 0 0 31W 4 *", "day of month", 12, "no day in the given months")
	f("0 0 L-30 2,4 *", "day of month", 5, "no day in the given months")
	f("@startup", "", 1, `"@startup" is not a known name`)
	f("@daily 5", "", 1, `"@daily" is not a known name`)
	f("@every", "@every", 1, "want one duration")
	f("@every 1h 2m 3s", "@every", 1, "want one duration")
	f("@every 1x", "@every", 8, `"1x" is not a duration`)
	f("@every 1h x", "@every", 11, `"x" is not a duration`)
	f("@every 0s", "@every", 8, "period 0s is below 1ms")
	f("@every -1h", "@every", 8, "period -1h0m0s is below")
	f("TZ= * * * * *", "TZ", 4, "the zone is empty")
	f("TZ=Local * * * * *", "TZ", 4, "replicas would disagree")
	f("CRON_TZ=localtime * * * * *", "TZ", 9, "replicas would disagree")
	f("TZ=Europe/Atlantis * * * * *", "TZ", 4, "unknown time zone Europe/Atlantis")
	f("TZ=../UTC * * * * *", "TZ", 4, "invalid location name")
	f("TZ=UTC CRON_TZ=UTC * * * * *", "TZ", 8, "the prefix appears twice")
	f("GAP=run * * * * *", "GAP", 5, `"run" is not a policy; want fire or skip`)
	f("FOLD= * * * * *", "FOLD", 6, "want first or last or both")
	f("CRON_GAP=skip * * * * *", "", 1, "want TZ=, CRON_TZ=, GAP= or FOLD=")
	f("SEC=1 * * * * *", "", 1, `"SEC=" is not a known prefix`)
	f("* * * * * TZ=UTC", "day of week", 11, `"TZ=UTC"`)
}

func TestCronRefusesOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]calendar.CronOption{
		`calendar: In("Local"): `:                    calendar.In("Local"),
		`calendar: In(""): the zone is empty`:        calendar.In(""),
		`calendar: In("posix/localtime"): this zone`: calendar.In("posix/localtime"),
		`calendar: In("Mars/Base"): unknown`:         calendar.In("Mars/Base"),
		`calendar: GapPolicy(2) is not a policy`:     calendar.GapPolicy(2),
		`calendar: FoldPolicy(-1) is not a policy`:   calendar.FoldPolicy(-1),
	} {
		// Also where the expression would win over the option.
		s, err := calendar.Cron("TZ=UTC GAP=fire FOLD=first * * * * *", o)
		if err == nil || s != nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, %v; want %q", s, err, want)
		}
	}
	if got := fmt.Sprint(calendar.GapPolicy(9), calendar.FoldPolicy(-1), calendar.GapSkip, calendar.FoldBoth); got != "unknown(9) unknown(-1) skip both" {
		t.Errorf("policies print as %q", got)
	}
}

// What a long or strange expression makes of the message.
func TestCronErrorIsBounded(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{strings.Repeat("9", 1e6) + " * * * *", strings.Repeat("x ", 1e5), "TZ=" + strings.Repeat("Z", 1e6) + " @daily", "@" + strings.Repeat("é", 1e6)} {
		if _, err := calendar.Cron(expr); err == nil || len(err.Error()) > 1500 {
			t.Errorf("the message has %d bytes", len(err.Error()))
		}
	}
}

// The days that letters stand for, from a calendar of 2026: January has 31 days
// and began on a Thursday, February 28 on a Sunday, April 30 on a Wednesday,
// August 31 on a Saturday.
func TestLetters(t *testing.T) {
	t.Parallel()
	f := func(fields string, want ...string) {
		t.Helper()
		s := calendar.Must(calendar.Cron("0 0 " + fields))
		var got []string
		for u := range calendar.Between(s, instant(t, "2025-12-31 12:00Z"), instant(t, "2026-12-31 12:00Z")) {
			if len(got) == len(want) {
				break
			}
			got = append(got, u.Format("Jan 2"))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", fields, got, want)
		}
	}
	f("L * *", "Jan 31", "Feb 28", "Mar 31", "Apr 30")
	f("L-3 * *", "Jan 28", "Feb 25", "Mar 28", "Apr 27")
	f("L-30 * *", "Jan 1", "Mar 1", "May 1")
	f("LW * *", "Jan 30", "Feb 27", "Mar 31", "Apr 30", "May 29") // 31 January is a Saturday, 31 May a Sunday
	f("L-3W 5 *", "May 28")
	f("L-1W 5 *", "May 29")                              // 30 May is a Saturday
	f("15W * *", "Jan 15", "Feb 16", "Mar 16", "Apr 15") // 15 February and March are Sundays
	f("1W * *", "Jan 1", "Feb 2", "Mar 2", "Apr 1", "May 1", "Jun 1", "Jul 1", "Aug 3")
	f("31W * *", "Jan 30", "Mar 31", "May 29")
	f("30W * *", "Jan 30", "Mar 30", "Apr 30")
	f("* * 5L", "Jan 30", "Feb 27", "Mar 27", "Apr 24")
	f("* * 0L", "Jan 25", "Feb 22", "Mar 29", "Apr 26")
	f("* * FRI#2", "Jan 9", "Feb 13", "Mar 13", "Apr 10")
	f("* * 7#1", "Jan 4", "Feb 1", "Mar 1", "Apr 5")
	f("* * 5#5", "Jan 30", "May 29", "Jul 31")
	f("13 * FRI", "Jan 2", "Jan 9", "Jan 13", "Jan 16")
	f("*/2 * FRI", "Jan 9", "Jan 23", "Feb 13", "Feb 27")
	f("2-16 * */5", "Jan 2", "Jan 4", "Jan 9", "Jan 11", "Jan 16", "Feb 6") // Sundays and Fridays
	f("1,15,L 2 *", "Feb 1", "Feb 15", "Feb 28")
	f("13 2 5L", "Feb 13", "Feb 27")
}

func TestSchedulesAreValues(t *testing.T) {
	t.Parallel()
	from := instant(t, "2026-03-01 00:00Z")
	for _, s := range []calendar.Schedule{
		calendar.Must(calendar.Every(time.Hour, 0)),
		calendar.Must(calendar.Cron("0 * * * *", calendar.In("Asia/Tokyo"))),
	} {
		// A clock's reading and the zone it was written in change nothing.
		a, b := s.Next(from), s.Next(from.In(time.FixedZone("", -7200)).Add(time.Nanosecond))
		if a != b || a.Location() != time.UTC {
			t.Errorf("%v: %v and %v", s, a, b)
		}
	}
}
