package calendar_test

import (
	_ "embed"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

//go:embed testdata/cronsim.txt
var cronsim string

// cronsimDiffers tells why cronsim has another instant. Each reason is an error of
// cronsim's, and what is not explained by one must agree.
func cronsimDiffers(zone, expr string, first time.Time) string {
	switch {
	case oneValueSteps.MatchString(expr):
		return "it reads a-a/n as a/n"
	case zone == "Australia/Lord_Howe":
		return "it counts in whole hours from where the clock moves by half an hour"
	case zone == "America/Sao_Paulo" && first.Equal(time.Date(2018, 11, 4, 3, 0, 0, 0, time.UTC)):
		return "it takes 01:00 for 00:00 where midnight is left out"
	}
	return ""
}

var oneValueSteps = regexp.MustCompile(`\b(\d+)-(\d+)/`)

// A different implementation of the same rules, by others, agrees about thousands
// of instants around changes of clocks.
func TestCronsim(t *testing.T) {
	t.Parallel()
	agreed, differ := 0, map[string]int{}
	for line := range strings.Lines(cronsim) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		zone, rest, _ := strings.Cut(line, "; ")
		expr, numbers, _ := strings.Cut(rest, "; ")
		s, err := calendar.Cron(expr, calendar.In(zone))
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		var got, want time.Time
		for i, minutes := range strings.Fields(numbers) {
			if i == 0 {
				want = time.Unix(int64(atoi(minutes))*60, 0).UTC()
				got = want
				continue
			}
			want, got = want.Add(time.Duration(atoi(minutes))*time.Minute), s.Next(got)
			if !got.Equal(want) {
				break
			}
		}
		first := got
		if want.Before(got) {
			first = want
		}
		why := cronsimDiffers(zone, expr, first)
		switch {
		case got.Equal(want):
			agreed++
		case why != "":
			differ[why]++
		default:
			loc := load(t, zone)
			t.Errorf("%q in %s is due at %v, for cronsim at %v", expr, zone, got.In(loc), want.In(loc))
		}
	}
	t.Logf("%d expressions agree; %v", agreed, differ)
	if agreed != 3901 || len(differ) != 3 {
		t.Errorf("%d expressions agree, want 3901; the others: %v", agreed, differ)
	}
}
