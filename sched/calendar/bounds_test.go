package calendar_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

func TestAt(t *testing.T) {
	t.Parallel()
	nine := instant(t, "2027-01-01 09:00Z")
	s := calendar.Must(calendar.At(nine.In(time.FixedZone("east", 3600))))
	if got := slices.Collect(calendar.Between(s, time.Time{}, nine)); !slices.Equal(got, []time.Time{nine}) || !s.Next(nine).IsZero() {
		t.Errorf("due at %v", got)
	}
	for _, text := range []string{"@at 2027-01-01T09:00:00Z", "@at 2027-01-01T10:00:00+01:00", "TZ=Europe/Berlin @at 2027-01-01T09:00:00Z"} {
		if got, err := calendar.Cron(text); err != nil || got != s {
			t.Errorf("%s is %v, %v; want %v", text, got, err, s)
		}
	}
	if counts := s.(interface {
		Count(from, to time.Time, limit int) int
	}); counts.Count(nine, nine.Add(1), 9) != 0 || counts.Count(nine.Add(-1), nine, 9) != 1 || counts.Count(nine.Add(-1), nine, 0) != 0 {
		t.Error("its instant is not after from and up to to")
	}
	for _, text := range []string{
		"@at", "@at tomorrow", "@at 2027-01-01T09:00:00Z 1", "@at 0000-01-01T09:00:00Z", "@at 2400-01-01T00:00:00Z",
	} {
		if _, err := calendar.Cron(text); err == nil || !strings.Contains(err.Error(), "@at, column ") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, at := range []time.Time{{}, nine.AddDate(400, 0, 0), nine.AddDate(-2027, 0, 0)} {
		if _, err := calendar.At(at); err == nil {
			t.Errorf("%v is accepted", at)
		}
	}
}

// The instants within the bounds are those of the schedule that are, also after a calendar has left
// some out.
func TestBound(t *testing.T) {
	t.Parallel()
	daily := calendar.Except(calendar.Must(calendar.Cron("0 12 * * *")), dates(t, "UTC", "2027-01-02"))
	first, third, fourth := instant(t, "2027-01-01 12:00Z"), instant(t, "2027-01-03 12:00Z"), instant(t, "2027-01-04 12:00Z")
	from, to := first.AddDate(0, 0, -3), first.AddDate(0, 0, 30)
	for _, of := range []struct {
		bounds calendar.Bounds
		text   string
		want   []time.Time
	}{
		{calendar.Bounds{Start: first, End: fourth}, "period(2027-01-01T12:00:00Z..2027-01-04T12:00:00Z)", []time.Time{first, third, fourth}},
		{
			calendar.Bounds{Start: first.Add(1), End: fourth.Add(-1)},
			"period(2027-01-01T12:00:00.000000001Z..2027-01-04T11:59:59.999999999Z)",
			[]time.Time{third},
		},
		{calendar.Bounds{Start: first.Add(-1), Runs: 2}, "period(2027-01-01T11:59:59.999999999Z.., 2 runs)", []time.Time{first, third}},
		{
			calendar.Bounds{Start: first, End: third, Runs: 9},
			"period(2027-01-01T12:00:00Z..2027-01-03T12:00:00Z, 9 runs)",
			[]time.Time{first, third},
		},
		{calendar.Bounds{End: from.Add(24 * time.Hour)}, "period(..2026-12-30T12:00:00Z)", []time.Time{from.Add(24 * time.Hour)}},
	} {
		s, err := calendar.Bound(daily, of.bounds)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := slices.Collect(calendar.Between(s, from, to)); !slices.Equal(got, of.want) {
			t.Errorf("%+v: due at %v, want %v", of.bounds, got, of.want)
		}
		if text := s.(interface{ String() string }).String(); !strings.HasSuffix(text, " ONLY "+of.text) {
			t.Errorf("%s, want one with %s", text, of.text)
		}
		if all := slices.Collect(calendar.Between(s, first.AddDate(-100, 0, 0), first.AddDate(300, 0, 0))); of.bounds.Start != (time.Time{}) &&
			!slices.Equal(all, of.want) {
			t.Errorf("%+v: due at %v from afar", of.bounds, all)
		}
	}
	if s := calendar.Must(calendar.Bound(daily, calendar.Bounds{})); s.Next(from) != daily.Next(from) {
		t.Error("the zero bounds limit something")
	}
	for want, bad := range map[string]calendar.Bounds{
		"needs a Start":       {Runs: 1},
		"out of range":        {Start: first, Runs: 1001},
		"is before the Start": {Start: third, End: first},
		"no instant within":   {Start: first.Add(1), End: third.Add(-1)},
	} {
		if _, err := calendar.Bound(daily, bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := calendar.Bound(nil, calendar.Bounds{}); err == nil {
		t.Error("a nil schedule is accepted")
	}
}

func ExampleBound() {
	daily := calendar.Must(calendar.Cron("0 9 * * *"))
	s, err := calendar.Bound(daily, calendar.Bounds{Start: time.Date(2027, time.January, 1, 0, 0, 0, 0, time.UTC), Runs: 3})
	if err != nil {
		panic(err)
	}
	for at := s.Next(time.Time{}); !at.IsZero(); at = s.Next(at) {
		fmt.Println(at)
	}
	// Output:
	// 2027-01-01 09:00:00 +0000 UTC
	// 2027-01-02 09:00:00 +0000 UTC
	// 2027-01-03 09:00:00 +0000 UTC
}
