package etcdclaims

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/lease"
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
	MinTTL = lease.MinTTL
	// MaxKeyBytes is the length of the longest key.
	MaxKeyBytes = keyspace.MaxKeyBytes
	// MaxNoteBytes is the length of the longest note. Every Lookup reads the
	// note, and etcd keeps all of its versions until compaction.
	MaxNoteBytes = 64 << 10
	// DefaultMaxAttempts is the number of attempts after which work is dead, and an item of
	// a queue a dead letter. Google's Pub/Sub has the same default.
	DefaultMaxAttempts = 5

	shortestTTL = 2 * time.Second // etcd's own floor: 1.5 election timeouts, in seconds
	longestTTL  = 365 * 24 * time.Hour

	defaultOpLimit  = 128        // etcd's --max-txn-ops
	maxRequestBytes = 1536 << 10 // etcd's --max-request-bytes
	bytesReserved   = 64 << 10   // what a request needs beside a user's values
)

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
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	if err := keyspace.CheckPrefix(cfg.Prefix); err != nil {
		return cfg, fmt.Errorf("etcdclaims: config: %w", err)
	}
	switch {
	case !printable(cfg.Owner) || len(cfg.Owner) > MaxKeyBytes:
		return cfg, fmt.Errorf("etcdclaims: config: Owner %.100q must be printable UTF-8 of at most %d bytes", cfg.Owner, MaxKeyBytes)
	}
	if err := cfg.checkTTL(cfg.TTL); err != nil {
		return cfg, fmt.Errorf("etcdclaims: config: %w", err)
	}
	return cfg, nil
}

// checkTTL returns why a lease time is invalid under this config, or nil.
func (cfg Config) checkTTL(ttl time.Duration) error {
	switch {
	case ttl < 0:
		return fmt.Errorf("TTL %v is negative", ttl)
	case ttl < MinTTL && !cfg.AllowShortTTL:
		return fmt.Errorf("TTL %v is below %v; a shorter one, from %v on, needs Config.AllowShortTTL of the client",
			ttl, MinTTL, shortestTTL)
	case ttl < shortestTTL:
		return fmt.Errorf("TTL %v is below %v, the shortest lease of etcd", ttl, shortestTTL)
	}
	if ttl > longestTTL {
		return fmt.Errorf("TTL %v is over the limit of %v", ttl, longestTTL)
	}
	if cfg.Drain < 0 {
		return fmt.Errorf("the Drain %v is negative", cfg.Drain)
	}
	t := cfg.timing(lease.Seconds(ttl))
	if t.Soft < 2*t.Renew {
		return fmt.Errorf("TTL %v with Drain %v leaves %v until handlers are told to stop, less than two renewals of %v: lengthen TTL or shorten Drain",
			ttl, t.Hard-t.Soft, t.Soft, t.Renew)
	}
	return nil
}

// timing is the deadline rule for a granted TTL.
func (cfg Config) timing(ttl time.Duration) lease.Timing { return lease.NewTiming(ttl, cfg.drain(ttl)) }

// bound is how long a call takes at most that does not wait for others.
func (cfg Config) bound() time.Duration { return max(lease.Seconds(cfg.TTL)/2, 5*time.Second) }

// drain returns how long a handler has to stop, for claims with a TTL.
func (cfg Config) drain(ttl time.Duration) time.Duration {
	if cfg.Drain > 0 {
		return cfg.Drain
	}
	return lease.Seconds(ttl) / 5
}

// printable reports whether s is non-empty UTF-8 without control characters.
func printable(s string) bool { return keyspace.Printable(s) }

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || !printable(host) {
		host = "unknown"
	}
	return host + "-" + strconv.Itoa(os.Getpid())
}
