package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/retry"
)

// The wait is random up to a limit that doubles to a second, however many tries there were.
func TestDelay(t *testing.T) {
	t.Parallel()
	for try, limit := range map[int]time.Duration{
		-1: 20 * time.Millisecond, 0: 20 * time.Millisecond, 1: 40 * time.Millisecond, 5: 640 * time.Millisecond,
		6: time.Second, 7: time.Second, 1 << 40: time.Second,
	} {
		least, most := time.Hour, time.Duration(0)
		for range 1000 {
			d := retry.Delay(try)
			least, most = min(least, d), max(most, d)
		}
		if least < time.Millisecond || least > time.Millisecond+limit/10 || most > time.Millisecond+limit || most < limit*9/10 {
			t.Errorf("try %d: from %v to %v, want up to %v", try, least, most, limit)
		}
	}
}

// A pause ends early with its context or its channel, and says so.
func TestPauseIsCutShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if !retry.Pause(t.Context(), 6) || time.Since(begun) == 0 || time.Since(begun) > 2*time.Second {
			t.Errorf("a pause of %v", time.Since(begun))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		end := make(chan struct{})
		close(end)
		begun = time.Now()
		if retry.Pause(ended, 6) || retry.PauseUnless(t.Context(), end, 6) || time.Since(begun) > 0 {
			t.Errorf("a pause of %v", time.Since(begun))
		}
	})
}

func TestDo(t *testing.T) {
	t.Parallel()
	passing, final, gone := errors.New("passing"), errors.New("final"), errors.New("gone")
	again := func(err error) bool { return errors.Is(err, passing) }
	for name, tt := range map[string]struct {
		errs  []error // of the attempts
		until time.Duration
		want  error
		tries int
	}{
		"at once":        {errs: []error{nil}, tries: 1},
		"after failures": {errs: []error{passing, passing, nil}, tries: 3},
		"refused":        {errs: []error{passing, final}, want: final, tries: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				err := retry.Do(t.Context(), again, func() error { tries++; return tt.errs[tries-1] })
				if !errors.Is(err, tt.want) || tries != tt.tries {
					t.Errorf("%v after %d tries", err, tries)
				}
			})
		})
	}
	t.Run("until its context ends", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, gone)
			defer cancel()
			begun, tries := time.Now(), 0
			err := retry.Do(ctx, again, func() error { tries++; return passing })
			if !errors.Is(err, passing) || !errors.Is(err, gone) || !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if d := time.Since(begun); d != time.Minute || tries < 60 || tries > 600 {
				t.Errorf("%d tries in %v", tries, d)
			}
		})
	})
	t.Run("once with a context that has ended", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		tries := 0
		if err := retry.Do(ctx, again, func() error { tries++; return passing }); !errors.Is(err, context.Canceled) || tries != 1 {
			t.Errorf("%v after %d tries", err, tries)
		}
	})
}

// A step without progress is repeated ever more slowly, one with progress at once.
func TestForever(t *testing.T) {
	t.Parallel()
	for _, progress := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			steps := 0
			retry.Forever(ctx, func() bool { steps++; return progress })
			if d := ctx.Err(); d == nil || progress != (steps > 2000) || steps < 60 {
				t.Errorf("progress %v: %d steps", progress, steps)
			}
		})
	}
}
