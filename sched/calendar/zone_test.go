package calendar

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The spans of zones against the offsets at single instants.
func TestSpans(t *testing.T) {
	t.Parallel()
	for i, name := range []string{
		"UTC", "America/New_York", "America/Nuuk", "America/Sao_Paulo", "Europe/Dublin", "Africa/Casablanca", "Asia/Manila",
		"Asia/Gaza", "Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Apia", "Pacific/Kiritimati", "America/Juneau", "EST5EDT",
	} {
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Fatalf("%v", err)
		}
		offset := func(u int64) int64 {
			_, o := time.Unix(u, 0).In(loc).Zone()
			return int64(o)
		}
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		for _, start := range []int64{beginning, 0, rng.Int64N(horizon), 4102358400 /* 31 December 2099 */, 4228502400 /* 2103 */, 5553100800 /* 31 December 2145 */} {
			z := spans{zone: loc, start: start}
			for n := 0; z.at(n).start < horizon; n++ {
				s := z.at(n)
				if n == 0 && s.start != start || n > 0 && s.start != z.at(n-1).end || s.end <= s.start {
					t.Fatalf("%s: span %+v does not follow %+v", name, s, z.at(max(n-1, 0)))
				}
				for _, u := range []int64{s.start, s.end - 1, s.start + rng.Int64N(s.end-s.start), s.start + rng.Int64N(s.end-s.start)} {
					if offset(u) != s.offset {
						t.Fatalf("%s: offset %d at %v, want %d: %+v", name, s.offset, time.Unix(u, 0).UTC(), offset(u), s)
					}
				}
				if reach < 2*max(s.offset, -s.offset) {
					t.Fatalf("%s: offset %d is farther than the reach of %d allows", name, s.offset, reach)
				}
			}
		}
	}
}

// A zone without a rule of its own for the time after its table stands still.
func TestSpansEnd(t *testing.T) {
	t.Parallel()
	z := spans{zone: time.FixedZone("", 3600), start: 5}
	if got, want := z.at(0), (span{start: 5, end: forever, offset: 3600}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
