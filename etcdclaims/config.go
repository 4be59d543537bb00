package etcdclaims

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
	"go.uber.org/zap"
)

// Bounds and defaults.
const (
	// DefaultPrefix is the prefix of all keys unless Config.Prefix is set.
	DefaultPrefix = keyspace.DefaultPrefix
	// DefaultTTL is the lease time of a session. With it, the work of a dead
	// owner is picked up within 16 s, or 34 s if etcd loses its leader.
	DefaultTTL = 15 * time.Second
	// MinTTL is the shortest TTL that is accepted without
	// Config.AllowShortTTL.
	MinTTL = 5 * time.Second
	// MaxKeyBytes is the length of the longest key.
	MaxKeyBytes = fencing.MaxKeyBytes
	// MaxNoteBytes is the length of the longest note. Every Lookup reads the
	// note, and etcd keeps all of its versions until compaction.
	MaxNoteBytes = 64 << 10
	// MaxResultBytes is the length of the longest result of work. A result is
	// read with its record.
	MaxResultBytes = 64 << 10

	// DefaultMaxAttempts is the number of attempts after which work is dead, and an item of
	// a queue a dead letter. Google's Pub/Sub has the same default.
	DefaultMaxAttempts = 5

	shortestTTL       = 2 * time.Second // etcd's own floor: 1.5 election timeouts, in seconds
	longestTTL        = 365 * 24 * time.Hour
	defaultRetention  = 24 * time.Hour
	leastRetention    = 2 * time.Second // as shortestTTL
	defaultDeadRetain = 30 * 24 * time.Hour

	rateError       = 0.01                   // rho: how far two clocks' rates may differ
	leastMargin     = 500 * time.Millisecond // M is at least this
	claimsPerLease  = 8192                   // ending a lease with 100,000 keys stalls etcd for 327 ms, with 10,000 for 25
	defaultOpLimit  = 128                    // etcd's --max-txn-ops
	maxRequestBytes = 1536 << 10             // etcd's --max-request-bytes
	bytesReserved   = 64 << 10               // what a request needs beside a user's values
)

// Backoff returns how long work waits after failed attempt number attempt,
// which is 1 for the first. It must be safe for concurrent use and must not
// keep state.
type Backoff func(attempt int) time.Duration

// ExponentialBackoff returns a Backoff that doubles from base up to limit. The
// actual delay is random, between half of that value and all of it, so that
// work that failed together does not retry together.
//
// A base of zero or less means limit. A negative limit means 0.
func ExponentialBackoff(base, limit time.Duration) Backoff {
	limit = max(limit, 0)
	return func(attempt int) time.Duration {
		d := limit
		// The limit is shifted down, since the base shifted up can overflow.
		if shift := max(attempt-1, 0); shift < 63 && base > 0 && base <= limit>>shift {
			d = base << shift
		}
		if d <= 1 {
			return d
		}
		return d/2 + rand.N(d/2+1)
	}
}

// Config configures a Client. Every field is optional. Set Logger in production: without
// it no log shows an outage.
type Config struct {
	// Prefix is the prefix of all keys in etcd that the client uses. Clients
	// with the same prefix share their claims. It must end in a slash, so that
	// an etcd role can be granted it, and must not be just "/". Default:
	// DefaultPrefix.
	//
	// One prefix may lie within another, such as /a/b/ within /a/. It must not
	// lie below /a/own/, /a/note/ or /a/work/, where a client with the prefix
	// /a/ stores the keys of its callers. Such a prefix is always refused,
	// whether or not a client uses /a/.
	Prefix string
	// Owner is a label for people. It appears in claims, logs and errors, and
	// is never compared: two processes with the same label exclude each other.
	// Default: the host name and the process id.
	Owner string
	// TTL is the lease time of claims that are acquired without the option
	// TTL. A longer TTL survives longer outages of etcd. A shorter TTL hands
	// over the work of a dead process sooner: within TTL + 1 s, or 2 TTL + 4 s
	// if etcd loses its leader.
	//
	// It must be at least MinTTL, and is rounded up to full seconds. Default:
	// DefaultTTL (15 s).
	TTL time.Duration
	// Drain is how long a handler may still run after its context has ended.
	// It is the time between the end of a claim's context and the end of the
	// claim. Default: a fifth of the TTL.
	Drain time.Duration
	// MaxAttempts is how many attempts work has before it is dead. Negative
	// means no limit. Default: DefaultMaxAttempts.
	MaxAttempts int
	// Backoff returns how long failed work waits for its next attempt.
	// Default: ExponentialBackoff(time.Second, 10*time.Minute).
	Backoff Backoff
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
	// must be at least twice the TTL. Negative means for ever. Default: 30
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
	// AllowShortTTL accepts a TTL from 2 s on, for tests. With so short a
	// lease, a pause of one second in etcd or in the process loses claims.
	AllowShortTTL bool
	// Logger receives events that no caller would otherwise see, such as an
	// outage of etcd. Nil means no logs. Package zaplog makes one of a slog.Logger.
	Logger *zap.Logger
	// Hooks are functions to call on events of the client, for metrics, traces and logs.
	// Default: none.
	Hooks Hooks
}

// withDefaults returns the config with defaults filled in, or which field is invalid.
func (cfg Config) withDefaults() (Config, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	if cfg.Owner == "" {
		cfg.Owner = defaultOwner()
	}
	if cfg.TTL == 0 {
		cfg.TTL = DefaultTTL
	}
	if cfg.MaxAttempts == 0 {
		cfg.MaxAttempts = DefaultMaxAttempts
	}
	if cfg.Backoff == nil {
		cfg.Backoff = ExponentialBackoff(time.Second, 10*time.Minute)
	}
	if cfg.Retention == 0 {
		cfg.Retention = defaultRetention
	}
	if cfg.DeadRetention == 0 {
		cfg.DeadRetention = max(defaultDeadRetain, min(2*cfg.TTL, 2*longestTTL))
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	if err := keyspace.CheckPrefix(cfg.Prefix); err != nil {
		return cfg, fmt.Errorf("etcdclaims: config: %w", err)
	}
	switch {
	case !printable(cfg.Owner) || len(cfg.Owner) > MaxKeyBytes:
		return cfg, fmt.Errorf("etcdclaims: config: Owner %.100q must be printable UTF-8 of at most %d bytes", cfg.Owner, MaxKeyBytes)
	case cfg.Retention > 0 && cfg.Retention < leastRetention:
		return cfg, fmt.Errorf("etcdclaims: config: Retention %v is below %v, the least that etcd counts reliably", cfg.Retention, leastRetention)
	case cfg.Retention > longestTTL:
		return cfg, fmt.Errorf("etcdclaims: config: Retention %v is over the limit of %v; use a negative one to keep done work for ever", cfg.Retention, longestTTL)
	case cfg.DeadRetention > 2*longestTTL:
		return cfg, fmt.Errorf("etcdclaims: config: DeadRetention %v is over the limit of %v; use a negative one to keep records for ever", cfg.DeadRetention, 2*longestTTL)
	}
	if err := cfg.checkTTL(cfg.TTL); err != nil {
		return cfg, fmt.Errorf("etcdclaims: config: %w", err)
	}
	if cfg.DeadRetention > 0 && cfg.DeadRetention < 2*cfg.TTL {
		return cfg, fmt.Errorf("etcdclaims: config: DeadRetention %v is below %v, twice the TTL: records must outlast claims", cfg.DeadRetention, 2*cfg.TTL)
	}
	return cfg, nil
}

// checkTTL returns why a lease time is invalid under this config, or nil.
func (cfg Config) checkTTL(ttl time.Duration) error {
	least := MinTTL
	if cfg.AllowShortTTL {
		least = shortestTTL
	}
	if ttl < 0 {
		return fmt.Errorf("TTL %v is negative", ttl)
	}
	if ttl < least {
		return fmt.Errorf("TTL %v is below %v; a shorter one needs AllowShortTTL (and at least %v)", ttl, least, shortestTTL)
	}
	if ttl > longestTTL {
		return fmt.Errorf("TTL %v is over the limit of %v", ttl, longestTTL)
	}
	if cfg.Drain < 0 {
		return fmt.Errorf("the Drain %v is negative", cfg.Drain)
	}
	t := cfg.timing(seconds(ttl))
	if t.soft < 2*t.renew {
		return fmt.Errorf("TTL %v with Drain %v leaves %v until handlers are told to stop, less than two renewals of %v: lengthen TTL or shorten Drain",
			ttl, t.hard-t.soft, t.soft, t.renew)
	}
	return nil
}

// timing is the deadline rule for one granted TTL; soft and hard count from t0.
type timing struct {
	renew   time.Duration // from one renewal to the next
	attempt time.Duration // the longest that one attempt may take
	soft    time.Duration
	hard    time.Duration
}

func (cfg Config) timing(ttl time.Duration) timing {
	margin := max(leastMargin, ttl/10)
	hard := ttl - time.Duration(float64(ttl)*rateError) - margin
	t := timing{renew: ttl / 3, attempt: ttl / 6, soft: hard - cfg.drain(ttl), hard: hard}
	if ttl < MinTTL {
		// The margin does not shrink with the TTL, so that a third of it would
		// be too late for a second try.
		t.renew = max(min(t.renew, t.soft*2/5), 0)
	}
	return t
}

// drain returns how long a handler has to stop, for claims with a TTL.
func (cfg Config) drain(ttl time.Duration) time.Duration {
	if cfg.Drain > 0 {
		return cfg.Drain
	}
	return seconds(ttl) / 5
}

// seconds rounds up to what a lease can have.
func seconds(d time.Duration) time.Duration {
	return time.Duration(math.Ceil(d.Seconds())) * time.Second
}

// printable reports whether s is non-empty UTF-8 without control characters.
func printable(s string) bool { return keyspace.Printable(s) }
