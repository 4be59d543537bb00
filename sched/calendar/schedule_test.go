package calendar

import (
	"math"
	"slices"
	"testing"
	"time"
	_ "time/tzdata" // where a machine has no tz database

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// instant reads RFC 3339, with a space for the T and with or without seconds.
func instant(t *testing.T, s string) time.Time {
	t.Helper()
	for _, layout := range []string{"2006-01-02 15:04Z07:00", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05.999999999Z07:00"} {
		if u, err := time.Parse(layout, s); err == nil {
			return u.UTC()
		}
	}
	t.Fatalf("%q is not an instant", s)
	return time.Time{}
}

func instants(t *testing.T, all ...string) (found []time.Time) {
	t.Helper()
	for _, s := range all {
		found = append(found, instant(t, s))
	}
	return found
}

func TestBetween(t *testing.T) {
	t.Parallel()
	hourly := Must(Every(time.Hour, 0))
	from, to := instant(t, "2026-01-01 00:00Z"), instant(t, "2026-01-01 03:00Z")
	got := slices.Collect(Between(hourly, from, to))
	want := instants(t, "2026-01-01 01:00Z", "2026-01-01 02:00Z", "2026-01-01 03:00Z")
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v: from is left out, to is not", got, want)
	}
	for range Between(hourly, to, from) {
		t.Error("something is due between two times in reverse order")
	}
	for first := range Between(hourly, from, to) {
		if !first.Equal(want[0]) {
			t.Errorf("the first is %v, want %v", first, want[0])
		}
		break
	}
}

// stuck always answers with one instant, as no schedule may.
type stuck struct{ at time.Time }

func (s stuck) Next(time.Time) time.Time { return s.at }

func TestBetweenEndsWithBadSchedule(t *testing.T) {
	t.Parallel()
	from, to := instant(t, "2026-01-01 00:00Z"), instant(t, "2026-01-02 00:00Z")
	for name, want := range map[string]struct {
		at time.Time
		n  int
	}{
		"stands still":   {from.Add(time.Hour), 1},
		"is from itself": {from, 0},
		"goes back":      {from.Add(-time.Hour), 0},
		"ended":          {time.Time{}, 0},
	} {
		if got := len(slices.Collect(Between(stuck{want.at}, from, to))); got != want.n {
			t.Errorf("%s: %d instants, want %d", name, got, want.n)
		}
	}
}

func TestNewestOfEvery(t *testing.T) {
	t.Parallel()
	from, to := instant(t, "2026-01-01 00:00Z"), instant(t, "2026-01-01 05:30Z")
	hourly := Must(Every(time.Hour, 0)).(interval)
	all := slices.Collect(Between(hourly, from, to)) // five
	for limit := -1; limit <= 7; limit++ {
		keep := min(max(limit, 0), len(all))
		if got, want := hourly.Newest(from, to, limit), all[len(all)-keep:]; !slices.Equal(got, want) {
			t.Errorf("the newest %d are %v, want %v", limit, got, want)
		}
		if got := hourly.Count(from, to, limit); got != keep {
			t.Errorf("%d are counted with limit %d, want %d", got, limit, keep)
		}
	}
	if got := hourly.Newest(to, from, 3); len(got) > 0 {
		t.Errorf("%v between two times in reverse order", got)
	}
}

// Counting milliseconds one by one would take months.
func TestEveryIsArithmetic(t *testing.T) {
	t.Parallel()
	s := Must(Every(time.Millisecond, 0)).(interval)
	end := instant(t, "9999-01-01 00:00Z")
	got := s.Newest(time.Time{}, end, 2)
	want := []time.Time{time.UnixMilli(horizon*1000 - 2).UTC(), time.UnixMilli(horizon*1000 - 1).UTC()}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// All milliseconds between the bounds, without the zero Time.
	if got, want := s.Count(time.Time{}, end, math.MaxInt), (horizon-beginning)*1000-1; int64(got) != want {
		t.Errorf("%d are counted, want %d", got, want)
	}
}

func TestCountInReverse(t *testing.T) {
	t.Parallel()
	from, to := instant(t, "2026-01-01 00:00Z"), instant(t, "2026-01-01 05:30Z")
	for _, s := range []counter{Must(Every(time.Hour, 0)).(counter), Must(Cron("0 * * * *")).(counter)} {
		if got := s.Count(to, from, 10); got != 0 {
			t.Errorf("%v: %d between two times in reverse order", s, got)
		}
		if got := s.Count(from, to, -1); got != 0 {
			t.Errorf("%v: %d with a negative limit", s, got)
		}
		if got := s.Count(from, to, 10); got != 5 {
			t.Errorf("%v: %d, want 5", s, got)
		}
	}
}

func TestMustPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("Must did not panic")
		}
	}()
	Must(Every(0, 0))
}

// far are times at and beyond the bounds, some of them unrepresentable but for
// time.Unix.
func far() []time.Time {
	return []time.Time{
		time.Unix(-1<<63, 0), time.Unix(-1<<62, 0), time.Unix(beginning-1, 0),
		{},
		time.Unix(beginning, 1),
		time.Unix(horizon-1, 0), time.Unix(horizon-1, 1), time.Unix(horizon, 0), time.Unix(horizon+1, 0),
		time.Unix(1<<62, 0), time.Unix(1<<63-1, 999999999),
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	first, last := time.Unix(beginning+1, 0).UTC(), time.Unix(horizon-1, 0).UTC()
	for _, s := range []Schedule{
		Must(Every(time.Second, 0)),
		Must(Cron("* * * * * *")),
		Must(Cron("* * * * * *", In("Pacific/Kiritimati"))), // UTC+14
		Must(Cron("* * * * * *", In("Pacific/Pago_Pago"))),  // UTC-11
		Must(Cron("* * 0-23 * * *", In("America/New_York"), FoldLast)),
	} {
		for _, from := range far() {
			var want time.Time
			switch sec := from.Unix(); {
			case sec <= beginning:
				want = first
			case sec < horizon-1:
				want = time.Unix(sec+1, 0).UTC()
			}
			if from.Unix() < horizon-1 && want.After(last) {
				t.Fatalf("the test is wrong: %v", want)
			}
			if got := s.Next(from); got != want {
				t.Errorf("%v: after %v (%d) comes %v, want %v", s, from, from.Unix(), got, want)
			}
		}
	}
}
