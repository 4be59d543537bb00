package etcdclaims

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/etcdclaims/claims/fencing"
	"go.uber.org/zap"
)

// Bounds and defaults. Times are of the client's clock unless said otherwise.
const (
	// DefaultPrefix is where everything is stored unless Config.Prefix says
	// otherwise.
	DefaultPrefix = "/etcdclaims/"
	// DefaultTTL is the lease time of a session: with it, work is picked up at
	// most 16 s after the death of its owner.
	DefaultTTL = 15 * time.Second
	// MinTTL is the least TTL accepted without Config.AllowShortTTL.
	MinTTL = 5 * time.Second
	// MaxKeyBytes is the longest key.
	MaxKeyBytes = fencing.MaxKeyBytes
	// MaxNoteBytes is the longest note: notes are read with every Lookup, and
	// etcd keeps each of their versions until it is compacted.
	MaxNoteBytes = 64 << 10
	// MaxResultBytes is the longest result of work: results are read with their
	// records.
	MaxResultBytes = 64 << 10

	shortestTTL        = 2 * time.Second // etcd's own floor: 1.5 election timeouts, in seconds
	longestTTL         = 365 * 24 * time.Hour
	defaultMaxAttempts = 10
	defaultRetention   = 24 * time.Hour

	rateError       = 0.01                   // rho: how far two clocks' rates may differ
	leastMargin     = 500 * time.Millisecond // M is at least this
	claimsPerLease  = 8192                   // ending a lease with 100,000 keys stalls etcd for 327 ms, with 10,000 for 25
	defaultOpLimit  = 128                    // etcd's --max-txn-ops
	maxRequestBytes = 1536 << 10             // etcd's --max-request-bytes
	bytesReserved   = 64 << 10               // what a request needs beside a user's values
)

// Backoff says how long work waits after its attempt-th failed attempt, 1 being
// the first. It must be a pure function: it is called from many goroutines.
type Backoff func(attempt int) time.Duration

// ExponentialBackoff doubles from base up to limit, and then takes a random
// time between half of that and all of it, so that what failed together does
// not return together.
func ExponentialBackoff(base, limit time.Duration) Backoff {
	return func(attempt int) time.Duration {
		d := limit
		if shift := attempt - 1; shift < 32 && base<<max(shift, 0) > 0 && base<<max(shift, 0) < limit {
			d = base << max(shift, 0)
		}
		if d <= 1 {
			return d
		}
		return d/2 + rand.N(d/2+1)
	}
}

// Config says how a Client works. The zero value is a good one.
type Config struct {
	// Prefix is the part of etcd's key space that the client uses; clients
	// share claims if they share it. It must end in a slash, so that it can be
	// given to a role of etcd as it is. Default: DefaultPrefix.
	Prefix string
	// Owner is a label for people: it stands in claims, logs and errors, and
	// is compared with nothing. Two processes with one label exclude each
	// other. Default: the host's name and the process id.
	Owner string
	// TTL is the lease time of claims for which no other is asked. A longer
	// one rides out longer outages of etcd, a shorter one hands the work of a
	// dead process over sooner: within TTL + 1 s, or 2 TTL + 4 s if etcd loses
	// its leader meanwhile. At least MinTTL, rounded up to full seconds.
	// Default: DefaultTTL.
	TTL time.Duration
	// Drain is how long a handler that was told to stop may still take. It
	// lies between the end of a claim's context and the end of the claim.
	// Default: a fifth of the TTL.
	Drain time.Duration
	// MaxAttempts is how often work is begun before it is dead. Negative: no
	// limit. Default: 10.
	MaxAttempts int
	// Backoff says how long failed work waits. Default: 1 s doubling up to 10
	// minutes, the last half of it random.
	Backoff Backoff
	// Retention is how long done work is remembered, which is how long its key
	// cannot be begun again. It is counted by etcd's clock and may last a
	// tenth longer. Negative: for ever. Default: 24 h.
	Retention time.Duration
	// AllowShortTTL accepts TTLs from 2 s on. With so short a lease a pause of
	// a second, of etcd or of the process, loses claims: it is for tests.
	AllowShortTTL bool
	// Logger is told what a caller is not, such as that etcd lacks a fix and
	// should be upgraded. Default: none.
	Logger *zap.Logger
	// Hooks are told what happens to claims.
	Hooks Hooks
}

// withDefaults returns the config with its gaps filled, or what is wrong.
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
		cfg.MaxAttempts = defaultMaxAttempts
	}
	if cfg.Backoff == nil {
		cfg.Backoff = ExponentialBackoff(time.Second, 10*time.Minute)
	}
	if cfg.Retention == 0 {
		cfg.Retention = defaultRetention
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	switch {
	case !strings.HasSuffix(cfg.Prefix, "/") || !printable(cfg.Prefix) || len(cfg.Prefix) > MaxKeyBytes:
		return cfg, fmt.Errorf("etcdclaims: config: Prefix %.100q must be printable UTF-8 of at most %d bytes that ends in a slash", cfg.Prefix, MaxKeyBytes)
	case !printable(cfg.Owner) || len(cfg.Owner) > MaxKeyBytes:
		return cfg, fmt.Errorf("etcdclaims: config: Owner %.100q must be printable UTF-8 of at most %d bytes", cfg.Owner, MaxKeyBytes)
	case cfg.Retention > longestTTL:
		return cfg, fmt.Errorf("etcdclaims: config: Retention %v is over the limit of %v; use a negative one to keep done work for ever", cfg.Retention, longestTTL)
	}
	if err := cfg.checkTTL(cfg.TTL); err != nil {
		return cfg, fmt.Errorf("etcdclaims: config: %w", err)
	}
	return cfg, nil
}

// checkTTL says what is wrong with a lease time under this config.
func (cfg Config) checkTTL(ttl time.Duration) error {
	least := MinTTL
	if cfg.AllowShortTTL {
		least = shortestTTL
	}
	if ttl < least {
		return fmt.Errorf("TTL %v is below %v; a shorter one needs AllowShortTTL (and at least %v)", ttl, least, shortestTTL)
	}
	if ttl > longestTTL {
		return fmt.Errorf("TTL %v is over the limit of %v", ttl, longestTTL)
	}
	if cfg.Drain < 0 {
		return fmt.Errorf("negative Drain %v", cfg.Drain)
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
	drain := cfg.Drain
	if drain == 0 {
		drain = ttl / 5
	}
	t := timing{renew: ttl / 3, attempt: ttl / 6, soft: hard - drain, hard: hard}
	if ttl < MinTTL {
		// The margin does not shrink with the TTL, so that a third of it would
		// be too late for a second try.
		t.renew = max(min(t.renew, t.soft*2/5), 0)
	}
	return t
}

// seconds rounds up to what a lease can have.
func seconds(d time.Duration) time.Duration {
	return time.Duration(math.Ceil(d.Seconds())) * time.Second
}

// printable reports whether s is non-empty UTF-8 without control characters.
func printable(s string) bool {
	return s != "" && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
