package sched

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/passthrough"
	"go.uber.org/zap"
)

// Scheduler runs jobs at the ticks of their schedules. Each tick begins at most once
// per attempt across all processes of a group. The methods of a Scheduler are safe
// for concurrent use.
type Scheduler struct {
	*group
	catalog *catalog

	going    atomic.Bool              // whether Run was called and has not returned
	conflict atomic.Pointer[[]string] // why jobs of this process do not run as they are here; nil if nothing is known
}

// New returns a scheduler. It does no I/O. Close of claims ends Run. New returns an error if the
// configuration is invalid, and etcdclaims.ErrNoClient for a nil client.
//
// With a client of etcdclaims.NewPassthrough New returns a passthrough scheduler. Its Run runs the
// jobs in this process, with fence 0, whatever other processes do.
// Nothing is recorded, and operations such as Pause return
// etcdclaims.ErrPassthrough.
func New(claims *etcdclaims.Client, cfg Config) (*Scheduler, error) {
	if err := passthrough.Check(claims); err != nil {
		return nil, errtext.Wrap("sched", err)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = attach.Logger(claims, zap.NewNop)
	}
	if cfg.Now == nil {
		cfg.Now = clock.For(claims.Etcd()).Time
	}
	g := newGroup(claims, cfg)
	return &Scheduler{group: g, catalog: newCatalog(g)}, nil
}

// Passthrough reports whether the scheduler has no etcd. Such a scheduler does not
// exclude other processes.
func (s *Scheduler) Passthrough() bool { return s.claims.Passthrough() }

// IsOwner reports whether this process is the owner of the group as far as it knows. It
// is meant for dashboards. The answer can be out of date, so make no decision
// depend on it.
func (s *Scheduler) IsOwner() bool { return s.owning.Load() }

// Add adds a job, before or during Run. The first tick of a job that is new to the
// group is the first one due after the owner has registered the job.
//
// The owner admits ticks of the jobs that were added in its own process. Add the
// same jobs in all processes. The job does not run while the owner does not have it: see
// JobInfo.Unadmitted. During a deployment the owner hands over, once, to a process that has all of its jobs
// in code and kinds, and a job in code that the owner lacks. That process asks a second after Run began, or within
// two minutes after Add. Runs in progress continue. An owner with a job that the process lacks
// keeps the ownership. While processes differ in a job, the owner's version
// applies.
//
// Add returns an error if the job is invalid, or if a job of that name was added
// before.
func (s *Scheduler) Add(job Job) error {
	valid, err := job.withDefaults()
	if err == nil {
		err = s.catalog.add(valid)
	}
	if err != nil {
		return fmt.Errorf("sched: add job %.80q: %w", job.Name, err)
	}
	return nil
}

// Handle registers the function that runs the defined jobs of a kind in this process,
// before or during Run. It is what Job.Handler is for a job in code. The payload is that of the
// definition, as far as this process knew it when the attempt began. Register the same kinds in
// all processes: the owner of the group admits ticks of the kinds that its own process has.
//
// Handle returns an error if the kind is not UTF-8 of 1 to 200 bytes without control
// characters. It also does if handler is nil, or if the kind has a function already.
func (s *Scheduler) Handle(kind string, handler func(ctx context.Context, t Tick, payload json.RawMessage) error) error {
	err := checkName(kind)
	if err == nil && handler == nil {
		err = errors.New("has no handler")
	}
	if err == nil {
		err = s.catalog.handle(kind, handler)
	}
	if err != nil {
		return fmt.Errorf("sched: handle: the kind %.80q %w", kind, err)
	}
	return nil
}
