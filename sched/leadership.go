package sched

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/inbox"
	"github.com/etcdclaims/claims/internal/live"
	"github.com/etcdclaims/claims/internal/oplog"
	"github.com/etcdclaims/claims/internal/priority"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
)

// leadership is one term of an owner. It admits ticks under the guard of its claim. One
// goroutine has its state; ticks that begin as they are admitted have others.
//
// It works in rounds. In each round every duty does at most what fits in one request,
// and reports whether more is left. So no duty delays another. The work of each duty
// is kept in queues, so the cost of a round depends on what is due, not on the number
// of jobs.
type leadership struct {
	*group
	catalog *catalog
	starter *starter
	claim   *etcdclaims.Claim
	feed    *live.Feed
	changed *changes

	jobs     map[string]*jobState       // by the digest of the name
	due      *priority.Queue[*jobState] // by when they are due
	doubtful *priority.Queue[*jobState] // by when they must be read again
	pausing  *priority.Queue[*jobState] // the jobs whose pauses end by themselves, by that
	changes  []decision                 // pending registrations
	stale    bool                       // whether all jobs must be read again

	waiting     map[string]*jobWaiting         // by the digest of the job
	late        *priority.Queue[*waiter]       // the ticks with a StartDeadline, by that
	withdrawn   map[string]withdrawal          // by the digest of the job
	withdrawing []decision                     // pending decisions of withdrawals
	requests    map[string]*request            // by key
	requestsOf  map[string]map[string]*request // by the digest of the job, and key
	asked       *priority.Queue[*request]      // the requests that can be served, oldest first
	unserved    map[string]bool                // the jobs whose requests may have to be given up, by digest

	heirs map[string]live.KV // the requests for the ownership, by key
	heir  string             // the client that the ownership is handed over to; empty for none

	pauses   map[string]pause   // by the digest of the job, or the key of a halt, as far as they can be read
	halts    map[string]halted  // the pauses of many jobs, by key
	heard    map[string]live.KV // changes of them that the jobs do not have so far
	haltEnds time.Time          // when the first of them ends by itself; zero for never

	suspects []suspect // runs that may be orphans
	unknown  unknown   // those of jobs that this process cannot run
	rescan   bool      // whether to look for orphans
	looked   time.Time // when the last search for orphans began

	inbox *inbox.Inbox // of its goroutine

	steps int // decisions in one transaction
	ticks int // ticks in one decision

	wall   time.Time // the last readings of both clocks
	mono   time.Time
	jumped bool // the clocks have diverged, and the ownership was not verified since
}

const (
	mostReads = 16               // jobs that one request reads, with seven operations each
	mostSteps = 64               // decisions in one transaction: nested, each takes some of etcd's 128 operations
	mostTicks = 32               // ticks in one decision
	mostPuts  = 512              // ticks in one transaction, which is bounded in size
	nap       = 10 * time.Second // the longest sleep; the clocks are compared after it
	clockSlip = time.Second      // how far the clocks may diverge between two readings
	planTime  = 50 * time.Millisecond

	unreadablePause = 500 * time.Millisecond // the least one, of an owner that cannot read the jobs

	admitting = "admit ticks"
)

func newLeadership(b *starter, claim *etcdclaims.Claim) *leadership {
	return &leadership{
		group: b.group, catalog: b.catalog, starter: b, claim: claim,
		feed: b.view.Subscribe(
			live.KindAsk, live.KindHeir, live.KindPaused, live.KindHalt, live.KindReady, live.KindWithdraw, live.KindReset),
		changed:   b.catalog.subscribe(),
		jobs:      make(map[string]*jobState),
		due:       priority.New((*jobState).sooner),
		doubtful:  priority.New(func(a, b *jobState) bool { return a.readAt.Before(b.readAt) }),
		pausing:   priority.New(func(a, b *jobState) bool { return a.pause.Until.Before(b.pause.Until) }),
		stale:     true,
		waiting:   make(map[string]*jobWaiting),
		withdrawn: make(map[string]withdrawal),
		late:      priority.New(func(a, b *waiter) bool { return a.Deadline.Before(b.Deadline) }),
		requests:  make(map[string]*request), requestsOf: make(map[string]map[string]*request),
		asked: priority.New(func(a, b *request) bool { return a.compare(b) < 0 }), unserved: make(map[string]bool),
		heirs:   make(map[string]live.KV),
		pauses:  make(map[string]pause),
		halts:   make(map[string]halted),
		heard:   make(map[string]live.KV),
		unknown: make(unknown),
		rescan:  true,
		inbox:   inbox.New(),
		steps:   mostSteps, ticks: mostTicks,
	}
}

// lead admits ticks until ctx ends, with the claim or the scheduler, or l has an heir. It returns an
// error only if retrying is useless.
func (l *leadership) lead(ctx context.Context) error {
	defer l.view.Unsubscribe(l.feed)
	defer l.catalog.unsubscribe(l.changed)
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		l.starter.watchClaims(ctx)
	}()
	defer func() { cancel(); <-watched }()
	select {
	case <-l.view.Synced:
	case <-ctx.Done():
		return nil
	}
	for !l.catalog.knows() { // which jobs run after others
		select {
		case <-l.changed.news:
		case <-ctx.Done():
			return nil
		}
	}
	l.readClocks()
	defer l.nextDue.Store(nil)
	defer l.pausedAt.Store(nil)
	for try := 0; ctx.Err() == nil; {
		more, err := l.round(ctx)
		l.announce()
		switch {
		case l.heir != "":
			return nil
		case err == nil:
			try = 0
			l.outage.Succeed(admitting)
			if !more {
				l.rest(ctx)
			}
		case ctx.Err() != nil || l.claim.Err() != nil:
			return nil
		default:
			if l.outage.Judge(admitting, err, zap.String("key", ownerKey(l.cfg.Group)), zap.Int64("fence", l.claim.Fence())) {
				return err
			}
			l.stale = true
			if errors.Is(err, errUnreadable) {
				select { // it may be the first in line again, at once
				case <-time.After(unreadablePause + retry.Delay(patience)):
				case <-ctx.Done():
				}
				return nil
			}
			retry.Pause(ctx, try)
			try++
		}
	}
	return nil
}

// announce notes for Stats when the next tick is due, and which pause is the oldest. It stays noted while a round
// hangs, so that a tick that is not admitted is seen to be overdue.
func (l *leadership) announce() {
	var at *time.Time
	if c, ok := l.due.First(); ok {
		at = new(c.at)
	}
	l.nextDue.Store(at)
	var since *time.Time
	now := l.now()
	for _, p := range l.pauses {
		if !p.Over(now) && (since == nil || p.At.Before(*since)) {
			since = new(p.At)
		}
	}
	l.pausedAt.Store(since)
}

// round lets each duty do some of its work, and reports whether any has more.
func (l *leadership) round(ctx context.Context) (more bool, err error) {
	if err := l.checkClocks(ctx); err != nil {
		return false, err
	}
	select {
	case <-l.starter.rescan: // also if there is never a rest
		l.rescan = true
	default:
	}
	l.absorb()
	if err := l.refresh(ctx); err != nil {
		return false, err
	}
	var refused error
	for _, duty := range []func(context.Context) (bool, error){
		l.hearHalts, l.register, l.endPauses, l.settleOrphans, l.withdraw, l.dropLate,
		l.admitRequests, l.giveUpRequests, l.admitDue, l.trimHistories, l.hearHeirs,
	} {
		left, err := duty(ctx)
		if err != nil && !oplog.IsTooLarge(err) && !oplog.IsRefusal(err) {
			return false, err
		}
		more = more || left
		// A request that etcd refuses for good must not stop the other duties.
		refused = errors.Join(refused, err)
	}
	return more, refused
}

// rest waits until there may be work.
func (l *leadership) rest(ctx context.Context) {
	select {
	case <-time.After(l.idle()):
	case <-l.feed.News:
	case <-l.changed.news:
	case <-l.inbox.News:
	case <-l.starter.rescan:
		l.rescan = true
	case <-ctx.Done():
	}
}

// idle returns how long nothing will be due.
func (l *leadership) idle() time.Duration {
	now, d := l.now(), nap
	if len(l.heard) > 0 {
		return 0
	}
	if l.view.AnyRuns() {
		d = orphanCheck - time.Since(l.looked)
	}
	if c, ok := l.due.First(); ok {
		d = min(d, c.at.Sub(now))
	}
	if c, ok := l.pausing.First(); ok {
		d = min(d, c.pause.Until.Sub(now))
	}
	if !l.haltEnds.IsZero() {
		d = min(d, l.haltEnds.Sub(now))
	}
	if w, ok := l.late.First(); ok {
		d = min(d, justAfter(w.Deadline, now))
	}
	if c, ok := l.doubtful.First(); ok {
		d = min(d, time.Until(c.readAt))
	}
	return max(d, 0)
}

// justAfter returns how long to wait from now to be past an instant, but not more than a nap:
// the time until an instant in a distant year is more than a Duration can hold.
func justAfter(at, now time.Time) time.Duration {
	return min(at.Sub(now), nap) + time.Millisecond
}

func (l *leadership) readClocks() { l.wall, l.mono = l.now(), clock.Mono() }

// checkClocks verifies the ownership if the wall clock and the monotonic clock have
// diverged. Then this process was suspended, or its wall clock was stepped, and its
// state may be out of date. Admissions are guarded in any case; this avoids decisions
// that are based on old state.
func (l *leadership) checkClocks(ctx context.Context) error {
	wall, mono := l.wall, l.mono
	l.readClocks()
	if slip := l.wall.Sub(wall) - l.mono.Sub(mono); slip.Abs() > clockSlip {
		l.jumped = true
		l.log.Warn("wall clock jumped", zap.Duration("by", slip))
		if hook := l.cfg.Hooks.ClockJumped; hook != nil {
			hook(slip)
		}
	}
	if !l.jumped {
		return nil
	}
	owns, err := l.claim.Owns(ctx)
	if err != nil {
		return err
	}
	if !owns {
		return etcdclaims.ErrLost
	}
	l.jumped, l.stale = false, true
	return nil
}

// A decision is a step of package tick, as a nested transaction. Its function is called with the
// reply.
type decision struct {
	step *pb.TxnRequest
	done func(r txn.Reply)
}

// take carries out decisions under the guard of the claim and further conditions, many per round trip. After
// an error the result of some decisions is unknown. If the conditions do not hold, all jobs are read again.
func (l *leadership) take(ctx context.Context, steps []decision, only ...*pb.Compare) error {
	for len(steps) > 0 {
		n := min(l.steps, len(steps))
		var ops txn.Branch
		taken := make([]txn.Op, n)
		for i, st := range steps[:n] {
			taken[i] = ops.Add(txn.Nest(st.step))
		}
		resp, err := l.claim.Txn(ctx).If(txn.Conditions(only)...).Then(txn.OpsOf(ops)...).Commit()
		if err != nil {
			if oplog.IsTooLarge(err) && n > 1 {
				l.steps = n / 2 // this etcd allows fewer operations
				continue
			}
			if oplog.IsTooLarge(err) && l.ticks > 1 {
				l.ticks /= 2 // from the next round on
			}
			return err
		}
		if !resp.Succeeded {
			l.stale = true
			return nil
		}
		reply := txn.ReplyIn(resp)
		l.histories.Learn(reply)
		for i, st := range steps[:n] {
			st.done(reply.Inner(taken[i]))
		}
		steps = steps[n:]
	}
	return nil
}
