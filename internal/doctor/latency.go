package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TimeWrites times writes that go through etcd's log and its disk as all do, but
// change nothing: deletions of a key that does not exist. It stops after n, or
// when the time is over, and returns what it has.
func TimeWrites(ctx context.Context, etcd *clientv3.Client, absent string, n int, most time.Duration) ([]time.Duration, error) {
	var took []time.Duration
	for end := clock.Mono().Add(most); len(took) < n && clock.Mono().Before(end); {
		begun := clock.Mono()
		if _, err := etcd.Delete(ctx, absent); err != nil {
			return took, err
		}
		took = append(took, time.Since(begun))
	}
	return took, nil
}

// Quantile returns a quantile of durations, 0 of none.
func Quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Fit compares a TTL with the time that a write takes.
//
// A session renews after a third of the TTL, gives each request a sixth of it, and
// stops handlers at 0.69 TTL. A tenth of what a request may take is comfortable:
// then one that takes ten times as long as the 99th percentile still arrives.
type Fit struct {
	TTL   time.Duration
	P99   time.Duration
	Least time.Duration // TTL that fits
}

const (
	comfort = 60 // TTLs that are so many times as long as a write are never in danger
	danger  = 6  // a request may take this part of the TTL
)

// FitOf compares a TTL with the 99th percentile of writes.
func FitOf(ttl, p99 time.Duration) Fit {
	least := (p99*comfort + time.Second - 1).Truncate(time.Second)
	return Fit{TTL: ttl, P99: p99, Least: max(least, etcdclaims.MinTTL)}
}

// Judge returns how bad the TTL is, and what to do about it.
func (f Fit) Judge() (l Level, remedy string) {
	switch {
	case f.P99*danger > f.TTL:
		return Error, fmt.Sprintf("set Config.TTL to %s at least, and look at etcd's disks (etcd_disk_wal_fsync_duration_seconds) and at the network", f.Least)
	case f.TTL < f.Least:
		return Warning, fmt.Sprintf("set Config.TTL to %s, or look at etcd's disks (etcd_disk_wal_fsync_duration_seconds) and at the network", f.Least)
	}
	return OK, ""
}

// Text says whether the TTL fits.
func (f Fit) Text() string {
	switch l, _ := f.Judge(); l {
	case OK:
		return fmt.Sprintf("a TTL of %s fits, down to %s", f.TTL, f.Least)
	case Warning:
		return fmt.Sprintf("a TTL of %s is short for that", f.TTL)
	}
	return fmt.Sprintf("with a TTL of %s claims are lost", f.TTL)
}
