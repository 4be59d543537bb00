package calendar_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

// Whatever is given to Cron, it returns a schedule or an error that points into
// the expression; and the text of a schedule makes the same schedule again.
func FuzzCron(f *testing.F) {
	for _, expr := range []string{
		"* * * * *", "0 30 2 * * MON-FRI", "TZ=America/New_York GAP=skip FOLD=both 30 2 * * *", "@every 1h30m +5m", "@daily",
		"0 0 L-3,LW,15W,L-2W ? * FRI#2,5L", "*/7,3 22-2/2 30-2 NOV-FEB 7", "0 0 29 2 *", "60 * * * *", "CRON_TZ=Local * * * * *", "1,,2 * * * *", "*/0 * * * *",
	} {
		f.Add(expr, int64(1772953200))
	}
	f.Fuzz(func(t *testing.T, expr string, unix int64) {
		s, err := calendar.Cron(expr)
		if err != nil {
			var e *calendar.ExprError
			if !errors.As(err, &e) || e.Column < 1 || e.Column > len(expr)+1 || e.Problem == "" || s != nil {
				t.Fatalf("%q is %v, %#v", expr, s, err)
			}
			return
		}
		text := fmt.Sprint(s)
		again, err := calendar.Cron(text)
		if err != nil || fmt.Sprint(again) != text {
			t.Fatalf("%q is %q, which is %v, %v", expr, text, again, err)
		}
		for u, n := time.Unix(unix, 0), 0; !u.IsZero() && n < 5; n++ {
			next := s.Next(u)
			if next != again.Next(u) || !next.IsZero() && !next.After(u) {
				t.Fatalf("%q after %v: %v, but %q: %v", expr, u, next, text, again.Next(u))
			}
			u = next
		}
	})
}

// Of any expression in any zone, what is due is what the model says: there, and
// at no instant between.
func FuzzNext(f *testing.F) {
	f.Add(uint64(1), int64(1772953200), uint8(1), false)   // New York, 8 March 2026
	f.Add(uint64(2), int64(1793511000), uint8(1), true)    // 1 November 2026
	f.Add(uint64(3), int64(1325239200), uint8(44), true)   // Samoa, 30 December 2011
	f.Add(uint64(4), int64(-2717650800), uint8(1), true)   // New York, 18 November 1883
	f.Add(uint64(5), int64(12970000000), uint8(40), false) // 2381
	zones := make([]*time.Location, len(modelZones))
	for i, name := range modelZones {
		zones[i] = load(f, name)
	}
	f.Fuzz(func(t *testing.T, seed uint64, unix int64, zone uint8, minutes bool) {
		loc := zones[int(zone)%len(zones)]
		rng := rand.New(rand.NewPCG(seed, 0))
		m := randomModel(rng, loc)
		if minutes {
			m = randomModel(rng, loc, "0", "*/20")
		}
		s, err := calendar.Cron(m.expr())
		if err != nil {
			return // the days that never come, which have a test of their own
		}
		u := time.Unix(unix%13e9, 0)
		for range 4 {
			next := s.Next(u)
			if next.IsZero() {
				return
			}
			if !next.After(u) {
				t.Fatalf("%s: after %v comes %v", m.expr(), u, next)
			}
			if !m.isDue(next) {
				t.Fatalf("%s: after %v comes %v, which is not due", m.expr(), u.In(loc), next.In(loc))
			}
			for range 20 {
				between := u.Add(time.Duration(rng.Int64N(int64(min(next.Sub(u), 400*24*time.Hour))))).Truncate(time.Second)
				if between.After(u) && m.isDue(between) {
					t.Fatalf("%s: after %v comes %v, but %v is due", m.expr(), u.In(loc), next.In(loc), between.In(loc))
				}
			}
			u = next
		}
	})
}

// isDue judges a single instant, by the offsets that the zone has near it.
func (m model) isDue(u time.Time) bool {
	wall := clock(u.In(m.loc))
	if m.matches(wall) {
		times := m.shows(u, wall)
		if m.followsClock() || m.fold == "both" || m.fold == "first" && u.Equal(times[0]) || m.fold == "last" && u.Equal(times[len(times)-1]) {
			return true
		}
	}
	if m.followsClock() || m.gap != "fire" {
		return false
	}
	for w := clock(u.Add(-time.Second).In(m.loc)).Add(time.Second); w.Before(wall); w = w.Add(time.Second) {
		if m.matches(w) && len(m.shows(u, w)) == 0 {
			return true
		}
	}
	return false
}

// shows returns the instants near u at which the clock shows wall.
func (m model) shows(u, wall time.Time) (times []time.Time) {
	for h := -54 * time.Hour; h <= 54*time.Hour; h += time.Hour {
		_, offset := u.Add(h).In(m.loc).Zone()
		at := wall.Add(-time.Duration(offset) * time.Second)
		if clock(at.In(m.loc)).Equal(wall) && !slices.ContainsFunc(times, at.Equal) {
			times = append(times, at)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}
