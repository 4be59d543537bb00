package tick

import (
	"strconv"
	"testing"
	"time"
)

func TestJitterIsDeterministic(t *testing.T) {
	t.Parallel()
	nominal := instant(t, "2026-03-01 10:00Z")
	// Written down once: a change of this value moves every job of every user.
	const want = 4364030860 * time.Nanosecond
	if got := jitter("report", nominal, time.Minute, time.Time{}); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
	elsewhere := nominal.In(time.FixedZone("", 3600))
	if jitter("report", elsewhere, time.Minute, time.Time{}) != jitter("report", nominal, time.Minute, time.Time{}) {
		t.Error("the zone in which the nominal instant is written changes the jitter")
	}
}

func TestJitterBounds(t *testing.T) {
	t.Parallel()
	nominal := instant(t, "2026-03-01 10:00Z")
	for name, tt := range map[string]struct {
		limit time.Duration
		next  time.Time
		below time.Duration // 0: must be 0
	}{
		"limit alone":        {time.Minute, time.Time{}, time.Minute},
		"next is nearer":     {time.Hour, nominal.Add(time.Second), time.Second},
		"next is farther":    {time.Second, nominal.Add(time.Hour), time.Second},
		"none":               {0, nominal.Add(time.Hour), 0},
		"negative":           {-time.Second, nominal.Add(time.Hour), 0},
		"next is not later":  {time.Second, nominal, 0},
		"next is before":     {time.Second, nominal.Add(-time.Hour), 0},
		"one nanosecond":     {1, time.Time{}, 1},
		"longest of all":     {1<<63 - 1, time.Time{}, 1<<63 - 1},
		"next of a far time": {time.Minute, instant(t, "2399-12-31 23:59Z"), time.Minute},
	} {
		for i := range 1000 {
			if got := jitter(strconv.Itoa(i), nominal, tt.limit, tt.next); got < 0 || got >= max(tt.below, 1) {
				t.Fatalf("%s: job %d has %v, want at least 0 and below %v", name, i, got, tt.below)
			}
		}
	}
}

// Chi squared, over jobs of one instant, instants of one job, and jobs whose
// names run into the times. The bound is passed by chance once in 100,000 times;
// the inputs are fixed.
func TestJitterIsUniform(t *testing.T) {
	t.Parallel()
	const n, bins = 40_000, 40
	start := instant(t, "2026-03-01 10:00Z")
	for name, draw := range map[string]func(i int) time.Duration{
		"jobs": func(i int) time.Duration { return jitter("job-"+strconv.Itoa(i), start, bins, time.Time{}) },
		"minutes": func(i int) time.Duration {
			return jitter("job", start.Add(time.Duration(i)*time.Minute), bins, time.Time{})
		},
		"nanos": func(i int) time.Duration { return jitter("job", start.Add(time.Duration(i)), bins, time.Time{}) },
	} {
		var count [bins]int
		for i := range n {
			count[draw(i)]++
		}
		chi := 0.0
		for _, c := range count {
			d := float64(c) - n/bins
			chi += d * d / (n / bins)
		}
		if chi > 88 { // 39 degrees of freedom
			t.Errorf("%s: chi squared is %.1f: %v", name, chi, count)
		}
	}
}
