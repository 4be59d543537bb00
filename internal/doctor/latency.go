package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
)

// A session renews after a third of the TTL, gives each request a sixth of it, and stops
// handlers at 0.69 TTL. A tenth of what a request may take is comfortable: then one that takes
// ten times as long as the 99th percentile still arrives.
const (
	comfort = 60 // TTLs that are so many times as long as a write are never in danger
	danger  = 6  // a request may take this part of the TTL
)

// latency times up to 100 writes that go through etcd's log and its disk as all do, but change
// nothing: deletions of a key that does not exist. It judges whether the TTL leaves room for them.
func (e *Examination) latency(ctx context.Context, claims *etcdclaims.Client) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	absent := claims.OwnKey("claimctl-doctor/" + rand.Text())
	var took []time.Duration
	for end := clock.Mono().Add(2 * time.Second); len(took) == 0 || len(took) < 100 && clock.Mono().Before(end); {
		begun := clock.Mono()
		if _, err := e.etcd().Delete(ctx, absent); err != nil {
			if len(took) == 0 {
				e.Add(Error, "latency", "see the endpoints and the permissions", "cannot be measured: %v", err)
				return
			}
			break
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	ttl := cmp.Or(e.TTL, e.shortestTTL(ctx), etcdclaims.DefaultTTL)
	level, remedy, text := fit(ttl, p99)
	e.Add(level, "latency", remedy, "of %s the median took %s, the 99th percentile %s; %s",
		count(len(took), "write", "writes"), round(took[len(took)/2]), round(p99), text)
}

// fit judges a TTL by the 99th percentile of writes.
func fit(ttl, p99 time.Duration) (l Level, remedy, text string) {
	least := max((p99*comfort + time.Second - 1).Truncate(time.Second), etcdclaims.MinTTL)
	const disks = "look at etcd's disks (etcd_disk_wal_fsync_duration_seconds) and at the network"
	switch {
	case p99*danger > ttl:
		remedy = fmt.Sprintf("set Config.TTL to %s at least, and %s", least, disks)
		return Error, remedy, fmt.Sprintf("with a TTL of %s claims are lost", ttl)
	case ttl < least:
		return Warning, fmt.Sprintf("set Config.TTL to %s, or %s", least, disks), fmt.Sprintf("a TTL of %s is short for that", ttl)
	}
	return OK, "", fmt.Sprintf("a TTL of %s fits, down to %s", ttl, least)
}
