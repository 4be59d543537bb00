package work

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/passthrough"
	"go.uber.org/zap"
)

// Runner begins work under claims of one client, and keeps its records. Make one per process and
// share it. Its methods are safe for concurrent use.
type Runner struct {
	claims *etcdclaims.Client
	cfg    Config
	host   beside.Host // nil: passthrough
	log    *zap.Logger
	stats  stats

	records  shelves  // what records are on of work that is not done
	done     shelves  // and of work that is
	outcomes outcomes // of work that callers wait for
	undos    undos
	live     live
}

// New returns a runner. It does no I/O, and needs no end: Close of claims ends it. An error describes
// the field of cfg that is invalid. For a nil client it is etcdclaims.ErrNoClient.
//
// With a client of etcdclaims.NewPassthrough every attempt is begun, and nothing is recorded.
func New(claims *etcdclaims.Client, cfg Config) (*Runner, error) {
	if err := passthrough.Check(claims); err != nil {
		return nil, errtext.Wrap("work", err)
	}
	r := &Runner{claims: claims, log: attach.Logger(claims, zap.NewNop), outcomes: outcomes{byKey: make(map[string]*outcome)}}
	ttl := etcdclaims.DefaultTTL
	if !claims.Passthrough() {
		r.host = beside.HostOf(claims)
		ttl = r.host.TTL()
	}
	var err error
	if r.cfg, err = cfg.withDefaults(ttl); err != nil {
		return nil, err
	}
	if r.host != nil {
		r.records.init(r, r.cfg.DeadRetention, true)
		r.done.init(r, r.cfg.Retention, false)
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
func (c *Runner) recordKey(key string) string { return recordKey(c.claims.Prefix(), key) }

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

// live is the work of a runner that is under way. No other mutex is taken while its own is held.
type live struct {
	mu     sync.Mutex
	all    map[*Work]struct{}
	pruned int // how many there were when those that have ended were last removed
}

func (l *live) add(w *Work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = make(map[*Work]struct{})
	}
	if l.all[w] = struct{}{}; len(l.all) > 2*l.pruned+64 {
		l.prune() // those whose claims were lost
	}
}

func (l *live) remove(w *Work) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, w)
}

// prune removes work whose claim has ended; the lock is held.
func (l *live) prune() {
	for w := range l.all {
		if w.Err() != nil {
			delete(l.all, w)
		}
	}
	l.pruned = len(l.all)
}

// shelves returns the shelves that have records of work that is under way.
func (l *live) shelves() map[*shelf]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
	used := make(map[*shelf]bool)
	for w := range l.all {
		used[w.shelf] = true
	}
	return used
}

// unanswered is the error of a context that has ended while a lease was waited for.
func (c *Runner) unanswered(ctx context.Context) error {
	err := context.Cause(ctx)
	if err == nil || errors.Is(err, etcdclaims.ErrClosed) || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	return c.host.Explain(fmt.Errorf("etcd has not answered: %w", err))
}
