package load_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/etcdclaims/claims/internal/compare/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Four workers whose steps take 10 ms make 400 a second, whatever the window.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int64
		shape := load.Shape{Workers: 4, WarmUp: 35 * time.Millisecond, Window: time.Second}
		r, err := load.Run(t.Context(), shape, []func() int64{requests.Load}, func(context.Context, int) error {
			requests.Add(3)
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Rate < 390 || r.Rate > 410 || r.P50 != 10 || r.P99 != 10 || r.Longest != 10 {
			t.Errorf("%+v", r)
		}
		if r.Counted[0] < 2.9 || r.Counted[0] > 3.1 {
			t.Errorf("%v requests for each step, want 3", r.Counted)
		}
	})
}

// Those who wait for each other end their steps together, and the rate is right
// even if that happens once or not at all in the window.
func TestRunInWaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 1000
		for _, window := range []time.Duration{300 * time.Millisecond, 900 * time.Millisecond, 1300 * time.Millisecond} {
			r, err := load.Run(t.Context(), load.Shape{Workers: workers, WarmUp: 50 * time.Millisecond, Window: window}, nil,
				func(context.Context, int) error {
					time.Sleep(250 * time.Millisecond)
					return nil
				})
			if err != nil {
				t.Fatal(err)
			}
			if want := workers / 0.25; r.Rate < 0.99*want || r.Rate > 1.01*want {
				t.Errorf("within %v %v a second, want %v", window, r.Rate, want)
			}
		}
	})
}

// The first to fail says why, though the others are cancelled.
func TestRunFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		_, err := load.Run(t.Context(), load.Shape{Workers: 3, Window: time.Hour}, nil, func(ctx context.Context, who int) error {
			if who == 1 {
				return broken
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, broken) {
			t.Errorf("error %v, want %v", err, broken)
		}
	})
}

func TestRunHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := load.Run(t.Context(), load.Shape{Workers: 1, Window: time.Second}, nil, func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if err == nil {
			t.Error("no error of a step that never ends")
		}
	})
}
