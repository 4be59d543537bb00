package ical_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched/ical"
)

// Rules have the days that RFC 5545 gives them.
func TestRules(t *testing.T) {
	t.Parallel()
	tried := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		start := time.Date(1996+rng.IntN(12), time.Month(1+rng.IntN(12)), 1+rng.IntN(31), 0, 0, 0, 0, time.UTC)
		m := randomModel(rng, start)
		// The first day of the rule is DTSTART.
		days := m.days(start, start.Year()+4)
		if len(days) == 0 {
			continue
		}
		last := days[0].Year() + 12
		start, days = days[0], m.days(days[0], last)
		if len(days) == 0 || !days[0].Equal(start) {
			continue
		}
		tried++
		c, err := ical.Parse(strings.NewReader(event("DTSTART:"+start.Format("20060102"), "RRULE:"+m.String())), "UTC")
		if err != nil {
			t.Errorf("%v from %v: %v", m, start, err)
			continue
		}
		for d := start; d.Year() <= last; d = d.AddDate(0, 0, 1) {
			_, want := slices.BinarySearchFunc(days, d, time.Time.Compare)
			if covered, _ := c.Covers(d); covered != want {
				t.Errorf("%v from %v: %v is covered: %v, want %v", m, start, d, covered, want)
				break
			}
		}
	}
	if tried < 100 {
		t.Errorf("tried %d rules", tried)
	}
}

// rules is a file of n events, of about 64 KiB if n is 700.
func rules(n int, start, format string) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "BEGIN:VEVENT\nUID:%d\nDTSTART:%s\nRRULE:%s\nEND:VEVENT\n", i, start, strings.ReplaceAll(format, "#", fmt.Sprint(i)))
	}
	return "BEGIN:VCALENDAR\n" + all.String() + "END:VCALENDAR\n"
}

// The days that the rules of a file examine are bounded, and equal rules are evaluated once.
func TestRuleCost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, says string }{
		{"equal rules", rules(1000, "19040229", "FREQ=MONTHLY;BYMONTHDAY=29;BYDAY=MO;COUNT=9"), ""},
		{"rules by the year", rules(1000, "19040229", "FREQ=YEARLY;COUNT=1#"), ""},
		{"rules of one month", rules(1000, "19040229", "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=29;COUNT=1#"), ""},
		// Each examines 71,558 days, from February 1904 to December 2099.
		{"many different rules", rules(700, "19040229", "FREQ=MONTHLY;BYMONTHDAY=29;BYDAY=MO;COUNT=1000#"), `event "139": RRULE:`},
	} {
		began := time.Now()
		_, err := ical.ParseText(tt.text, "UTC")
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("%s: took %v", tt.name, d)
		}
		if (err != nil) != (tt.says != "") || err != nil &&
			!(strings.Contains(err.Error(), tt.says) && strings.Contains(err.Error(), "span more than 10000000 days")) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.says)
		}
	}
}
