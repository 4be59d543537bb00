package pausing_test

import (
	"math"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/pausing"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A pause that ends by itself lasts for some time, and not for longer than anybody means.
func TestLength(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for d, valid := range map[time.Duration]bool{
		1: true, 2 * time.Hour: true, pausing.Most: true,
		0: false, -1: false, math.MinInt64: false, pausing.Most + 1: false, math.MaxInt64: false,
	} {
		end, err := pausing.For(d).End(now)
		if (err == nil) != valid || valid && !end.Equal(now.Add(d)) || !valid && !end.IsZero() {
			t.Errorf("%v: %v, %v", d, end, err)
		}
	}
	if end, err := (pausing.Length{}).End(now); !end.IsZero() || err != nil {
		t.Errorf("without an end: %v, %v", end, err)
	}
	if end, err := pausing.For(time.Hour).End(time.Date(9999, 12, 31, 23, 30, 0, 0, time.UTC)); err == nil {
		t.Errorf("an end that no value can have: %v", end)
	}
	if got := pausing.For(2*time.Hour).String() + (pausing.Length{}).String(); got != "for 2h0m0s" {
		t.Errorf("%q", got)
	}
}

func TestTextWithoutReason(t *testing.T) {
	t.Parallel()
	if got := pausing.Text("olga", time.Unix(0, 0), time.Time{}, ""); got != "by olga since 1970-01-01T00:00:00Z" {
		t.Error(got)
	}
}

// A pause is over from its end on.
func TestOver(t *testing.T) {
	t.Parallel()
	end := time.Unix(100, 0)
	if pausing.Over(end, end.Add(-1)) || !pausing.Over(end, end) || !pausing.Over(end, end.Add(1)) || pausing.Over(time.Time{}, end) {
		t.Error("not over from its end on")
	}
}
