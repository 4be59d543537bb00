package lease

import (
	"testing"
	"time"
)

func TestTiming(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tt := range []struct {
		ttl, drain time.Duration
		want       Timing
	}{
		{30 * time.Second, 5 * time.Second, Timing{Renew: 10000 * ms, Attempt: 5000 * ms, Soft: 21700 * ms, Hard: 26700 * ms}},
		{12 * time.Second, 2 * time.Second, Timing{Renew: 4000 * ms, Attempt: 2000 * ms, Soft: 8680 * ms, Hard: 10680 * ms}},
		{6 * time.Second, 0, Timing{Renew: 2000 * ms, Attempt: 1000 * ms, Soft: 5340 * ms, Hard: 5340 * ms}},
		{3 * time.Second, time.Second, Timing{Renew: 588 * ms, Attempt: 500 * ms, Soft: 1470 * ms, Hard: 2470 * ms}}, // the least margin
		{3 * time.Second, 0, Timing{Renew: 988 * ms, Attempt: 500 * ms, Soft: 2470 * ms, Hard: 2470 * ms}},
		{3 * time.Second, 3 * time.Second, Timing{Renew: 0, Attempt: 500 * ms, Soft: -530 * ms, Hard: 2470 * ms}},
	} {
		tt.want.TTL = tt.ttl
		got := NewTiming(tt.ttl, tt.drain)
		if got != tt.want || got.Drain() != tt.drain {
			t.Errorf("%v with a drain of %v: %+v, want %+v", tt.ttl, tt.drain, got, tt.want)
		}
	}
}

// A claim expires before its lease, even where the server's clock is as fast as is assumed.
func TestExpiresBeforeTheLease(t *testing.T) {
	t.Parallel()
	for ttl := time.Second; ttl < time.Hour; ttl += ttl/7 + time.Millisecond {
		d := NewTiming(ttl, ttl/8)
		if spare := ttl - time.Duration(float64(d.Hard)*(1+rateError)); spare < leastMargin || spare < ttl/10 {
			t.Fatalf("%v: hard deadline %v, which leaves %v", ttl, d.Hard, spare)
		}
		if second := d.Renew + 2*d.Attempt; ttl >= MinTTL && second > d.Soft {
			t.Fatalf("%v: a second try ends after %v, soft deadline %v", ttl, second, d.Soft)
		}
	}
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]time.Duration{
		0: 0, 1: time.Second, time.Second: time.Second, time.Second + 1: 2 * time.Second, 1500 * time.Millisecond: 2 * time.Second,
	} {
		same(t, d.String(), Seconds(d), want)
	}
}
