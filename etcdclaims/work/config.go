package work

import (
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

const (
	defaultRetention  = 24 * time.Hour
	leastRetention    = 2 * time.Second // the least that etcd counts reliably
	defaultDeadRetain = 30 * 24 * time.Hour
	longest           = 365 * 24 * time.Hour
)

// Config configures a Runner. Every field is optional.
type Config struct {
	// MaxAttempts is how many attempts work has before it is dead. Negative
	// means no limit. Default: etcdclaims.DefaultMaxAttempts.
	MaxAttempts int
	// Backoff returns how long failed work waits for its next attempt. Default:
	// etcdclaims.ExponentialBackoff(time.Second, 10*time.Minute).
	Backoff etcdclaims.Backoff
	// Retention is how long the record of done work is kept. During that time
	// its key cannot be begun again. After that it can: choose a Retention
	// longer than callers retry. etcd counts the time, and keeps the record for
	// up to a tenth longer (1 s at least). If etcd elects a new leader, it can
	// count anew. Retention must be at least 2 s. Negative means for ever.
	// Default: 24 h.
	Retention time.Duration
	// DeadRetention is how long the record is kept of work that is not done and
	// has no owner: work that is dead, failed, given back or orphaned. After that the
	// work counts as never begun, even if it is AtMostOnce. etcd counts the
	// time from the end of the attempt, or from the death of the owner. It
	// must be at least twice the TTL of the client. Negative means for ever. Default: 30
	// days.
	//
	// Some records are kept longer. Work that waits longer than half of
	// DeadRetention for its next attempt keeps its record until then, and for
	// at least half of DeadRetention beyond that. Any record may last up to a
	// tenth longer. The bound is not strict: records that one client puts within
	// a tenth of DeadRetention share a lease. The client renews it while
	// work with such a record is under way. As with Retention, etcd can count
	// anew.
	DeadRetention time.Duration
}

// withDefaults returns the config with defaults filled in, for claims with a TTL, or which field
// is invalid.
func (cfg Config) withDefaults(ttl time.Duration) (Config, error) {
	if cfg.MaxAttempts == 0 {
		cfg.MaxAttempts = etcdclaims.DefaultMaxAttempts
	}
	if cfg.Backoff == nil {
		cfg.Backoff = etcdclaims.ExponentialBackoff(time.Second, 10*time.Minute)
	}
	if cfg.Retention == 0 {
		cfg.Retention = defaultRetention
	}
	if cfg.DeadRetention == 0 {
		cfg.DeadRetention = max(defaultDeadRetain, min(2*ttl, 2*longest))
	}
	switch {
	case cfg.Retention > 0 && cfg.Retention < leastRetention:
		return cfg, fmt.Errorf("work: config: Retention %v is below %v, the least that etcd counts reliably", cfg.Retention, leastRetention)
	case cfg.Retention > longest:
		return cfg, fmt.Errorf("work: config: Retention %v is over the limit of %v; "+
			"use a negative one to keep done work for ever", cfg.Retention, longest)
	case cfg.DeadRetention > 2*longest:
		return cfg, fmt.Errorf("work: config: DeadRetention %v is over the limit of %v; "+
			"use a negative one to keep records for ever", cfg.DeadRetention, 2*longest)
	case cfg.DeadRetention > 0 && cfg.DeadRetention < 2*ttl:
		return cfg, fmt.Errorf("work: config: DeadRetention %v is below %v, twice the TTL: records must outlast claims", cfg.DeadRetention, 2*ttl)
	}
	return cfg, nil
}
