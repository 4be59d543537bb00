package sched

import (
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/live"
	"github.com/etcdclaims/claims/internal/oplog"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	"go.uber.org/zap"
)

// readTime is the timeout of one request.
const readTime = 5 * time.Second

// group is what all parts of a scheduler share.
type group struct {
	claims    *etcdclaims.Client
	cfg       Config
	log       *zap.Logger
	keys      keys
	view      *live.View // nil: passthrough
	histories *live.Histories
	outage    *oplog.Log
	ends      live.Ends

	epoch    atomic.Int64              // of the last claim of this process
	elected  atomic.Int64              // how many ownerships this process has had
	owning   atomic.Bool               // whether this process is the owner
	nextDue  atomic.Pointer[time.Time] // when the owner's next tick is due; nil if no tick is, or this process is not the owner
	pausedAt atomic.Pointer[time.Time] // since when the job is paused that the owner knows to be paused longest; nil as for nextDue
	running  atomic.Int64              // runs of this process
}

func newGroup(claims *etcdclaims.Client, cfg Config) *group {
	g := &group{claims: claims, cfg: cfg, log: cfg.Logger.With(zap.String("group", cfg.Group))}
	g.outage = oplog.New(g.log, claims.Unreachable)
	if !claims.Passthrough() {
		g.keys = tick.NewKeys(claims.Prefix(), cfg.Group)
		g.histories = live.NewHistories(len(g.keys.Records("")))
		g.view = live.New(core.Of(claims).KV(), claims.Etcd(), g.keys.Now(), g.log, g.outage, g.histories.ForgetAll)
	}
	return g
}

func (g *group) now() time.Time { return g.cfg.Now().UTC().Round(0) }

// explained returns what the caller learns of a request that failed.
func (g *group) explained(err error) error {
	return txn.Denied(attach.Of(g.claims).Explain(err))
}

// aboutJob returns the log fields that identify a job, and further ones.
func (g *group) aboutJob(job string, more ...zap.Field) []zap.Field {
	return append([]zap.Field{zap.String("job", job), zap.String("key", jobKey(g.cfg.Group, job))}, more...)
}

// history returns the history of a job, as it is known.
func (g *group) history(job Job) tick.History {
	h := g.histories.Of(g.keys.Records(job.Name), job.History)
	if job.HistoryFor > 0 {
		h.Before = keyspace.Instant(g.now().Add(-job.HistoryFor))
	}
	return h
}

// noteEnd notes that a scheduled tick of a job with an Overdue has ended.
func (g *group) noteEnd(j Job, p past) {
	if j.Overdue > 0 && !p.Again && !tick.IsManual(p.ID) {
		g.ends.Add(j.Name, p.Nominal, p.Nominal.Add(j.Overdue))
	}
}

// signal puts an element into a channel of capacity one, unless it is full.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
