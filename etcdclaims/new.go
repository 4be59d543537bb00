package etcdclaims

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/line"
	"github.com/etcdclaims/claims/internal/outage"
	"github.com/etcdclaims/claims/internal/ownwait"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/store"
	"github.com/etcdclaims/claims/internal/suspicion"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// New returns a client that stores its claims in etcd. It does no I/O. It does
// not take over etcd: close that yourself, after the Client.
//
// An error describes the field of cfg that is invalid. A nil etcd is an error, too; see
// [NewPassthrough].
func New(etcd *clientv3.Client, cfg Config) (*Client, error) {
	if etcd == nil {
		return nil, errNoEtcd
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := newClient(cfg)
	c.etcd, c.clock = etcd, clock.For(etcd)
	c.connect(protocol.Layout{Prefix: cfg.Prefix, Instance: uuid.NewString()})
	c.events.clientOpened(c)
	return c, nil
}

// connect makes the parts of a client with etcd, each on those before it.
func (c *Client) connect(layout protocol.Layout) {
	timing := c.cfg.timing(lease.Seconds(c.cfg.TTL))
	c.outage = outage.New(outage.Config{
		Etcd: c.etcd, Log: c.log, Instance: layout.Instance, Patience: outage.PatienceOf(timing.Renew),
		AtStake: c.atStake, Unanswered: func() { c.pool.Doubt() }, Passing: claimerr.IsPassing,
		Probe: func(ctx context.Context) { _ = c.store.ReadEpoch(ctx) }, Go: built{c}.Go,
	})
	c.store = store.New(store.Config{
		IO: c.life.IO, Etcd: c.etcd, Log: c.log, Layout: layout, Timeout: min(max(timing.Attempt, time.Second), 5*time.Second),
		Ops: defaultOpLimit, Bytes: maxRequestBytes / 2,
		Observe: c.outage.ObserveTxn, ObserveOther: c.outage.Observe, Requested: c.events.requested, OnRewind: c.rewound,
	})
	watches, waiters := line.NewWatches(c.etcd, c.store, c.outage, c.log), new(line.Waiters)
	c.pool = lease.NewPool(lease.Config{
		Etcd: c.etcd, Store: c.store, Clock: c.clock, Log: c.log, Owner: c.cfg.Owner, Life: c.life, Outage: c.outage, Timing: c.cfg.timing,
		Verify: func(ctx context.Context, s *lease.Session, what lease.Turn) (lease.Verified, error) {
			return c.terms.Verify(ctx, s, what)
		},
		Renewed: func(s *lease.Session, r lease.Renewal) {
			c.events.renewed(s, r)
			waiters.Share(c.terms.Shareable) // not while the lease may have ended by the wall clock
		},
		Began: func(rev int64) { c.follow(watches, rev) },
	})
	c.terms = term.New(term.Config{
		Store: c.store, Pool: c.pool, Life: c.life, Outage: c.outage, Clock: c.clock, Log: c.log, Owner: c.cfg.Owner,
		Observer: &c.events, Waiters: waiters, Uptime: c.uptime, Bound: c.cfg.bound(),
	})
	c.line = &line.Line{
		Acquirer: acquire.NewAcquirer(c.terms, exclusions{c}, c.events.termBegan), Waiters: waiters, Watches: watches, Etcd: c.etcd,
		OwnWaits: ownwait.New(c.log.With(zap.String("instance", layout.Instance)), c.terms.Keys.Made), Shortcut: c.shortcut,
	}
	c.peers = suspicion.New(suspicion.Config{
		Layout: layout, Owner: c.cfg.Owner, Log: c.log, Etcd: c.store, IO: c.life.IO, Open: c.life.Open,
		Spawn: func(f func()) { c.life.Finish(f) }, Restored: c.outage.EndedWithin, Judged: c.events.judged,
	})
}

// follow begins what a client does while it has, or had, a session.
func (c *Client) follow(watches *line.Watches, rev int64) {
	c.life.Finish(c.pool.KeepPulse)
	c.life.Finish(c.checkVersion)
	c.notices(watches).Follow(rev)
}

// notices is how the client learns what others do to its claims.
func (c *Client) notices(watches *line.Watches) *lease.Notices {
	return &lease.Notices{
		Pool: c.pool, Watch: watches.Begin, Evicted: c.terms.Evicted, Handed: c.line.Waiters.Deliver, Withdrawn: c.line.Waiters.Withdrawn,
		Asked: c.peers.Heard, Question: c.peers.Answer, Missed: c.line.Waiters.DoubtAll, Restored: c.terms.RemoveGhosts,
	}
}

// rewound gives up all claims: etcd's revision went back.
func (c *Client) rewound(err error) {
	c.log.Error("etcd went back to an older revision; all claims given up", zap.Error(err))
	for _, s := range c.pool.Live() {
		s.Die(claimerr.Loss{Reason: claimerr.SessionDead, Err: err})
	}
}

func init() {
	claimerr.Provide(claimerr.Provider{
		Of: func(token fencing.Token, l claimerr.Loss) error {
			return &LostError{Token: token, Reason: Reason(l.Reason), Err: l.Err}
		},
		Fence: func(err error) (int64, bool) {
			var lost *LostError
			if !errors.As(err, &lost) {
				return 0, false
			}
			return lost.Token.Fence, true
		},
	})
}
