package work

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/internal/retention"
	"go.uber.org/zap"
)

// Runner begins work under claims of one client, and keeps its records. Make one per process and
// share it. Its methods are safe for concurrent use.
type Runner struct {
	// These are set by New:
	claims  *etcdclaims.Client
	cfg     Config
	host    beside.Host // nil: passthrough, without what is on leases
	log     *zap.Logger
	records *retention.Leases // what records are on of work that is not done
	done    *retention.Leases // and of work that is

	// These guard themselves:
	stats    stats
	outcomes outcomes // of work that callers wait for
	undos    undos
}

// New returns a runner. It does no I/O, and needs no end: Close of claims ends it. An error describes
// the field of cfg that is invalid. For a nil client it is etcdclaims.ErrNoClient.
//
// With a client of etcdclaims.NewPassthrough every attempt is begun, and nothing is recorded.
func New(claims *etcdclaims.Client, cfg Config) (*Runner, error) {
	if err := passthrough.Check(claims); err != nil {
		return nil, errtext.Wrap("work", err)
	}
	r := &Runner{claims: claims, log: attach.Logger(claims, zap.NewNop)}
	ttl := etcdclaims.DefaultTTL
	if !claims.Passthrough() {
		r.host = beside.HostOf(claims)
		r.outcomes = outcomes{host: r.host, byKey: make(map[string]*outcome)}
		ttl = r.host.TTL()
	}
	var err error
	if r.cfg, err = cfg.withDefaults(ttl); err != nil {
		return nil, err
	}
	if r.host != nil {
		r.records = retention.NewLeases(r.host, r.log, "records of work", r.cfg.DeadRetention, true)
		r.done = retention.NewLeases(r.host, r.log, "records of work", r.cfg.Retention, false)
	}
	return r, nil
}

// Claims returns the client that was given to New.
func (c *Runner) Claims() *etcdclaims.Client {
	if c == nil {
		return nil
	}
	return c.claims
}

// Passthrough reports whether the runner has no etcd. Nothing is recorded then.
func (c *Runner) Passthrough() bool { return c != nil && c.claims.Passthrough() }

// Unreachable is that of the client: it returns why etcd does not answer, and
// etcdclaims.ErrNoClient for a nil runner.
func (c *Runner) Unreachable() error { return c.Claims().Unreachable() }

// refusal returns why every call is refused, or nil.
func (c *Runner) refusal() error {
	if c == nil {
		return fmt.Errorf("work: the runner is nil: New was not called, or it returned an error that was ignored: %w", etcdclaims.ErrNoClient)
	}
	return nil
}

// checkKey returns why a call on a key is refused, or nil.
func (c *Runner) checkKey(key string) error {
	if err := c.refusal(); err != nil {
		return err
	}
	if c.host == nil {
		_, err := c.claims.Lookup(context.Background(), key)
		return err
	}
	return c.host.CheckKey(key)
}

// recordKey is the etcd key of the record of work.
func (c *Runner) recordKey(key string) string { return keyspace.Work(c.claims.Prefix(), key) }

type stats struct{ tookOver, completed, failed atomic.Int64 }

// Stats counts what a Runner did since New.
type Stats struct {
	TookOver  int64 // work that was begun after its owner had died
	Completed int64 // attempts that completed the work
	Failed    int64 // attempts that failed
	Waiting   int   // calls that wait now behind others of this client for the same work
}

// Stats returns the counts so far. It does no I/O. The counts of a passthrough runner are zero.
func (c *Runner) Stats() Stats {
	if c == nil {
		return Stats{}
	}
	return Stats{
		TookOver: c.stats.tookOver.Load(), Completed: c.stats.completed.Load(), Failed: c.stats.failed.Load(),
		Waiting: c.outcomes.waiting(),
	}
}

// logDead logs that no caller begins the work again by itself.
func (c *Runner) logDead(r Record) {
	c.log.Warn("work is dead",
		zap.String("key", r.Key), zap.Int("attempt", r.Attempt), zap.Int64("fence", r.Fence), zap.String("error", r.Error))
}
