package suspicion

import (
	"testing"
	"time"
)

const ms = time.Millisecond

func TestPatience(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		wrongly int
		times   []time.Duration
		want    time.Duration
	}{
		"all are near":                  {0, []time.Duration{50 * ms, 1 * ms, 2 * ms}, 450 * ms},
		"three of the longest time":     {0, []time.Duration{50 * ms, 300 * ms, 200 * ms}, 900 * ms},
		"suspected wrongly once":        {1, []time.Duration{50 * ms}, 900 * ms},
		"far, and suspected wrongly":    {1, []time.Duration{300 * ms}, 1800 * ms},
		"never longer than the longest": {3, []time.Duration{time.Minute}, 3600 * ms},
	} {
		if got := patience(tt.wrongly, tt.times...); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	for others, want := range map[int]time.Duration{0: 25 * ms, 1: 50 * ms, 19: 500 * ms, 47: 1200 * ms, 1000: 1200 * ms} {
		if got := pace(others); got != want {
			t.Errorf("%d others: %v, want %v", others, got, want)
		}
	}
}

func TestLimitOfRequest(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		trip     latency
		failures int
		want     time.Duration
	}{
		"near":                          {latency(1 * ms), 0, 150 * ms},
		"three round trips":             {latency(100 * ms), 0, 300 * ms},
		"twice as long after a failure": {latency(1 * ms), 1, 300 * ms},
		"never longer than the longest": {latency(100 * ms), 9, 3 * time.Second},
	} {
		if got := tt.trip.limit(tt.failures); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	long := latency(80 * ms)
	if long.took(10 * ms); long != latency(70*ms) {
		t.Errorf("a shorter time made it %v, want 70ms", time.Duration(long))
	}
	if long.took(90 * ms); long != latency(90*ms) {
		t.Errorf("a longer time made it %v, want 90ms", time.Duration(long))
	}
}

func TestWrongSuspicionsAreForgotten(t *testing.T) {
	t.Parallel()
	var at time.Time
	var w wrongs
	for i, want := range []int{1, 2, 3, 3} {
		if w = w.another(at); w.level != want {
			t.Errorf("level %d after %d wrong suspicions, want %d", w.level, i+1, want)
		}
	}
	for passed, want := range map[time.Duration]int{
		0: 3, time.Minute - 1: 3, time.Minute: 2, 3 * time.Minute: 0, time.Hour: 0,
	} {
		if got := w.left(at.Add(passed)); got != want {
			t.Errorf("level %d after %v, want %d", got, passed, want)
		}
	}
	if w = w.another(at.Add(2 * time.Minute)); w.level != 2 {
		t.Errorf("level %d, want the one that is left and one more", w.level)
	}
}
