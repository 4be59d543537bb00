package keyspace_test

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// The texts of instants have the order of the instants, also outside of what nanoseconds in
// an int64 can express.
func TestInstant(t *testing.T) {
	t.Parallel()
	before := ""
	for _, year := range []int{-3000, 1, 1600, 1969, 1970, 1971, 2261, 2262, 2263, 2600, 3000, 300_000} {
		now := keyspace.Instant(time.Date(year, 1, 2, 0, 0, 0, 0, time.UTC))
		if len(now) != 20 || now < before {
			t.Errorf("%d: %s after %s", year, now, before)
		}
		before = now
	}
}
