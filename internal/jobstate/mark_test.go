package jobstate

import (
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/sched/calendar"
)

var (
	minutely = calendar.Must(calendar.Every(time.Minute, 0))
	start    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func minute(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }

func record(n int, outcome tick.Outcome, missed int) tick.Past {
	return tick.Past{ID: tick.NominalID(minute(n)), Nominal: minute(n), Outcome: outcome, Missed: missed}
}

// A mark goes back to the clock, and ticks that are known to be decided stay decided. Whether others
// may have run shows in the records.
func TestPlanReset(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		records   []tick.Past
		decided   []int
		any       bool
		mayRepeat bool
	}{
		"all are recorded":           {[]tick.Past{record(3, tick.OK, 0), record(2, tick.OK, 0), record(1, tick.OK, 0)}, []int{1, 2, 3}, false, false},
		"one counts the others":      {[]tick.Past{record(3, tick.OK, 2)}, []int{3}, true, false},
		"all were missed":            {[]tick.Past{record(3, tick.Missed, 3)}, nil, true, false},
		"records are gone":           {[]tick.Past{record(3, tick.OK, 0)}, []int{3}, true, true},
		"the newest is not recorded": {[]tick.Past{record(1, tick.OK, 0)}, []int{1}, true, true},
		"none is recorded":           {nil, nil, true, true},
	} {
		st := State{High: minute(3), Spec: Spec{Born: minute(-60), Since: minute(-60)}}
		is, any := st.PlanReset(minutely, c.records, minute(0).Add(time.Second))
		var want Instants
		for _, n := range c.decided {
			want = append(want, minute(n))
		}
		if any != c.any || is.MayRepeat != c.mayRepeat || !slices.EqualFunc(is.Decided, want, time.Time.Equal) {
			t.Errorf("%s: %+v, %v", name, is, any)
		}
	}
}

// A mark is ahead if two ticks are between the clock and it.
func TestAhead(t *testing.T) {
	t.Parallel()
	for high, want := range map[time.Duration]time.Duration{
		-time.Hour: 0, Slack: 0, 90 * time.Second: 0, 2 * time.Minute: 2 * time.Minute, time.Hour: time.Hour,
	} {
		if got := Ahead(minutely, start.Add(high), start); got != want {
			t.Errorf("%v ahead: %v, want %v", high, got, want)
		}
	}
	if got := Ahead(nil, start.Add(2*time.Hour), start); got != time.Hour {
		t.Errorf("of an unknown schedule: %v", got)
	}
}

// A tick without a record is explained by the oldest later record that counts it.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	records := []tick.Past{record(9, tick.OK, 3), record(5, tick.Missed, 2), record(2, tick.OK, 0)}
	for n, want := range map[int]string{
		1: "", 3: "", 4: "missed, one of 2 ticks that one record counts, until 2026-03-01T12:05:00Z: no owner admitted it in time, and CatchUp leaves such ticks out",
		6: "missed, one of 3 ticks that came due while no owner could admit them: CatchUp went on with the tick of 2026-03-01T12:09:00Z", 10: "",
	} {
		if got := GivenUp(minute(n), minutely, records); got != want {
			t.Errorf("minute %d: %q, want %q", n, got, want)
		}
	}
}

// A schedule that panics has no further instant.
func TestGuard(t *testing.T) {
	t.Parallel()
	var cause any
	if s := Guard(broken{}, func(c any) { cause = c }); !s.Next(start).IsZero() || cause != "no calendar" || Text(s) != "jobstate.broken" {
		t.Errorf("next %v, cause %v, called %s", s.Next(start), cause, Text(s))
	}
	if Guard(minutely, nil) != minutely {
		t.Error("a schedule of this module is guarded")
	}
}

type broken struct{}

func (broken) Next(time.Time) time.Time { panic("no calendar") }
