package tick

import (
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

// instant parses RFC 3339, with a space instead of the T.
func instant(t *testing.T, s string) time.Time {
	t.Helper()
	u, err := time.Parse("2006-01-02 15:04Z07:00", s)
	if err != nil {
		t.Fatal(err)
	}
	return u.UTC()
}

// foreign is a schedule of another package: it has Next alone.
type foreign struct{ of calendar.Schedule }

func (f foreign) Next(t time.Time) time.Time { return f.of.Next(t) }

func TestNewest(t *testing.T) {
	t.Parallel()
	from, to := instant(t, "2026-01-01 00:00Z"), instant(t, "2026-01-01 05:30Z")
	for name, s := range map[string]calendar.Schedule{
		"every":   calendar.Must(calendar.Every(time.Hour, 0)),
		"cron":    calendar.Must(calendar.Cron("0 * * * *")),
		"foreign": foreign{calendar.Must(calendar.Every(time.Hour, 0))},
	} {
		all := slices.Collect(calendar.Between(s, from, to)) // five
		for limit := -1; limit <= 7; limit++ {
			keep := min(max(limit, 0), len(all))
			if got, want := newest(s, from, to, limit), all[len(all)-keep:]; !slices.Equal(got, want) {
				t.Errorf("%s: the newest %d are %v, want %v", name, limit, got, want)
			}
		}
		if got := newest(s, to, from, 3); len(got) > 0 {
			t.Errorf("%s: %v between two times in reverse order", name, got)
		}
	}
}

// The schedules of package calendar are counted by arithmetic, others one by one,
// with the same result.
func TestCount(t *testing.T) {
	t.Parallel()
	from, to := instant(t, "2026-01-01 00:00Z"), instant(t, "2026-01-01 05:30Z")
	for name, tt := range map[string]struct {
		schedule calendar.Schedule
		fast     bool
	}{
		"every":   {calendar.Must(calendar.Every(time.Hour, 0)), true},
		"@every":  {calendar.Must(calendar.Cron("@every 1h")), true},
		"cron":    {calendar.Must(calendar.Cron("0 * * * *")), true},
		"foreign": {foreign{calendar.Must(calendar.Every(time.Hour, 0))}, false},
	} {
		j := Job{Schedule: tt.schedule}
		if got := j.CountsFast(); got != tt.fast {
			t.Errorf("%s: CountsFast is %v", name, got)
		}
		for limit, want := range map[int]int{1: 1, 4: 4, 5: 5, 6: 5} {
			if got := j.CountTo(from, to, limit); got != want {
				t.Errorf("%s: %d are counted with limit %d, want %d", name, got, limit, want)
			}
		}
		if got := j.CountTo(to, from, 10); got != 0 {
			t.Errorf("%s: %d between two times in reverse order", name, got)
		}
	}
}
