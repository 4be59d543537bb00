package calendar

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestEvery(t *testing.T) {
	t.Parallel()
	f := func(period, phase time.Duration, from, want string) {
		t.Helper()
		if got := Must(Every(period, phase)).Next(instant(t, from)); got != instant(t, want) {
			t.Errorf("every %v +%v: after %s comes %v, want %s", period, phase, from, got, want)
		}
	}
	f(time.Hour, 0, "2026-03-01 10:00Z", "2026-03-01 11:00Z")
	f(time.Hour, 0, "2026-03-01 10:59:59.999999999Z", "2026-03-01 11:00Z")
	f(time.Hour, 5*time.Minute, "2026-03-01 10:00Z", "2026-03-01 10:05Z")
	f(time.Hour, -5*time.Minute, "2026-03-01 10:00Z", "2026-03-01 10:55Z")
	f(time.Hour, 25*time.Hour, "2026-03-01 10:00Z", "2026-03-01 11:00Z") // 25 h is 1 h more than 24 periods
	f(24*time.Hour, 0, "2026-03-08 09:00-05:00", "2026-03-09 00:00Z")    // a day is 24 hours, whatever New York does
	f(7*24*time.Hour, 0, "2026-03-01 00:00Z", "2026-03-05 00:00Z")       // the epoch was a Thursday
	f(1500*time.Millisecond, 0, "1970-01-01 00:00Z", "1970-01-01 00:00:01.5Z")
	f(time.Hour, 0, "1969-12-31 23:30Z", "1970-01-01 00:00Z")
	f(time.Hour, 0, "1969-12-31 22:30Z", "1969-12-31 23:00Z")
	f(7*time.Second, 3*time.Second, "1969-12-31 23:59:55.5Z", "1969-12-31 23:59:56Z")
	f(time.Millisecond, 0, "2026-01-01 00:00:00.0001Z", "2026-01-01 00:00:00.001Z")
	f(time.Millisecond, 0, "1960-01-01 00:00:00.0001Z", "1960-01-01 00:00:00.001Z")
}

func TestEveryRefuses(t *testing.T) {
	t.Parallel()
	f := func(period, phase time.Duration, want string) {
		t.Helper()
		s, err := Every(period, phase)
		if err == nil || s != nil || !strings.HasPrefix(err.Error(), "calendar: every: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("Every(%v, %v) is %v, %v; want an error with %q", period, phase, s, err, want)
		}
	}
	f(0, 0, "period 0s")
	f(-time.Hour, 0, "period -1h0m0s")
	f(time.Microsecond, 0, "period 1µs is below 1ms")
	f(1500*time.Microsecond, 0, "period 1.5ms is not a whole number")
	f(time.Hour, time.Nanosecond, "phase 1ns is not a whole number")
}

// Each instant is a number of periods after the epoch and the phase, by
// arithmetic on what Every was given, and none lies between.
func TestEveryIsAnchored(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		period := time.Duration(1+rng.Int64N(1<<rng.IntN(44))) * time.Millisecond
		phase := time.Duration(rng.Int64N(1<<40)-1<<39) * time.Millisecond
		from := time.Unix(rng.Int64N(8e9)-4e9, rng.Int64N(1e9)) // 1843 to 2096: within a Duration of the epoch
		next := Must(Every(period, phase)).Next(from)
		after := next.Sub(from)
		if after <= 0 || after > period {
			t.Fatalf("every %v +%v: after %v comes %v", period, phase, from, next)
		}
		if (next.Sub(time.Unix(0, 0))-phase)%period != 0 {
			t.Fatalf("every %v +%v: %v is not a whole number of periods after the phase", period, phase, next)
		}
	}
}

func TestEveryString(t *testing.T) {
	t.Parallel()
	f := func(period, phase time.Duration, want string) {
		t.Helper()
		if got := fmt.Sprint(Must(Every(period, phase))); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f(time.Hour, 0, "@every 1h0m0s")
	f(time.Hour, 2*time.Hour, "@every 1h0m0s")
	f(90*time.Minute, 5*time.Minute, "@every 1h30m0s +5m0s")
	f(time.Hour, -5*time.Minute, "@every 1h0m0s +55m0s")
	f(1500*time.Millisecond, 0, "@every 1.5s")
}
