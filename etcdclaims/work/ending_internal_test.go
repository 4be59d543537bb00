package work

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// What an error means for the work.
func TestFailureOfAnError(t *testing.T) {
	t.Parallel()
	cfg := Config{MaxAttempts: 3, Backoff: func(attempt int) time.Duration { return time.Duration(attempt) * time.Minute }}
	boom := errors.New("boom")
	for _, tt := range []struct {
		cause       error
		text, stack string
		permanent   bool
		after       time.Duration
	}{
		{boom, "boom", "", false, 2 * time.Minute},
		{nil, "failed without a cause", "", false, 2 * time.Minute},
		{fmt.Errorf("x: %w", etcdclaims.Permanent(boom)), "x: boom", "", true, 2 * time.Minute},
		{etcdclaims.RetryAfter(boom, time.Hour), "boom", "", false, time.Hour},
		{&panicError{Value: "p", Stack: []byte("s")}, "panic: p", "s", false, 2 * time.Minute},
	} {
		f := failure(tt.cause, cfg)
		if f.Error != tt.text || f.Stack != tt.stack || f.Permanent != tt.permanent || f.Limit != 3 || f.After(2) != tt.after {
			t.Errorf("%v: %+v, next after %v", tt.cause, f, f.After(2))
		}
	}
}
