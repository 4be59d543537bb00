package calendar

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A counter counts instants without visiting each.
type counter interface {
	Count(from, to time.Time, limit int) int
}

// Counting by days and counting one by one have the same result, around clock
// changes too.
func TestCountOfCron(t *testing.T) {
	t.Parallel()
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"}
	exprs := []string{
		"* * * * *", "0 * * * *", "30 2 * * *", "*/7 1-3 * * *", "0,30 0,2,23 * * *", "15 22-2 * * FRI-MON", "0 0 L * *", "*/10 */2 */3 * *",
		"59 59 23 * * *", "*/20 0 0-3 * * *", "0 3 15W * *", "30 1 * * SUN#1",
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1500 {
		expr := fmt.Sprintf("TZ=%s GAP=%v FOLD=%v %s", zones[r.IntN(len(zones))], GapPolicy(r.IntN(2)), FoldPolicy(r.IntN(3)), exprs[r.IntN(len(exprs))])
		c, err := Cron(expr)
		if err != nil {
			t.Fatal(err)
		}
		// Near the changes of clocks of a year, or anywhere.
		from := time.Date(2010+r.IntN(20), time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(2)*500, time.UTC)
		if zone := c.(*cron).zone; r.IntN(3) > 0 {
			if _, end := from.In(zone).ZoneBounds(); !end.IsZero() {
				from = end.Add(time.Duration(r.Int64N(int64(6*time.Hour))) - 3*time.Hour)
			}
		}
		to := from.Add(time.Duration(r.Int64N(int64(10 * 24 * time.Hour))))
		if r.IntN(4) == 0 {
			to = from.Add(time.Duration(r.Int64N(int64(3 * time.Hour))))
		}
		limit := 1 + r.IntN(2000)
		want := 0
		for range Between(c, from, to) {
			if want++; want == limit {
				break
			}
		}
		if got := c.(counter).Count(from, to, limit); got != want {
			t.Errorf("%s from %v to %v: %d, want %d", expr, from, to, got, want)
		}
	}
}

// Counting takes no longer for many ticks.
func TestCountIsFast(t *testing.T) {
	every, err := Every(time.Millisecond, 0)
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	const limit = 100_000
	for _, schedule := range []Schedule{every, Must(Cron("* * * * * *")), Must(Cron("* 8-20 * * * *", In("Europe/Berlin")))} {
		s := schedule.(counter)
		allocs := testing.AllocsPerRun(10, func() {
			if n := s.Count(from, from.AddDate(0, 4, 0), limit); n != limit {
				t.Errorf("%d", n)
			}
		})
		began := time.Now()
		for range 100 {
			s.Count(from, from.AddDate(0, 4, 0), limit)
		}
		// One by one it takes 10 ms and more.
		if d := time.Since(began) / 100; d > 2*time.Millisecond || allocs > 50 {
			t.Errorf("%v: %v and %v allocations", s, d, allocs)
		}
	}
}
