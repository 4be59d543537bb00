package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Four workers whose steps take 10 ms make 400 a second, whatever the window.
func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		four := shape{workers: 4, warmUp: 35 * time.Millisecond, window: time.Second}
		r, err := measured(t.Context(), four, sent.Load, func(context.Context, int) error {
			sent.Add(3)
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if r[rate] < 390 || r[rate] > 410 || r[p50] != 10 || r[p99] != 10 || r[longest] != 10 {
			t.Errorf("%+v", r)
		}
		if r[requests] < 2.9 || r[requests] > 3.1 {
			t.Errorf("%v requests for each step, want 3", r[requests])
		}
	})
}

// Those who wait for each other end their steps together, and the rate is right
// even if that happens once or not at all in the window.
func TestLoadInWaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 1000
		for _, window := range []time.Duration{300 * time.Millisecond, 900 * time.Millisecond, 1300 * time.Millisecond} {
			r, err := measured(t.Context(), shape{workers: workers, warmUp: 50 * time.Millisecond, window: window}, none,
				func(context.Context, int) error {
					time.Sleep(250 * time.Millisecond)
					return nil
				})
			if err != nil {
				t.Fatal(err)
			}
			if want := workers / 0.25; r[rate] < 0.99*want || r[rate] > 1.01*want {
				t.Errorf("within %v %v a second, want %v", window, r[rate], want)
			}
		}
	})
}

// The first to fail says why, though the others are cancelled.
func TestLoadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		_, err := measured(t.Context(), shape{workers: 3, window: time.Hour}, none, func(ctx context.Context, who int) error {
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

func TestLoadHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := measured(t.Context(), shape{workers: 1, window: time.Second}, none, func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if err == nil {
			t.Error("no error of a step that never ends")
		}
	})
}

func measured(ctx context.Context, s shape, sent func() int64, step func(context.Context, int) error) (sample, error) {
	return (&driven{shape: s, sent: sent, step: step}).measure(ctx)
}
