package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/retry"
	"go.uber.org/zap"
)

// Handler handles a partition. It runs until ctx ends: when the partition moves, the member
// leaves, or the claim is about to expire. It then has the drain of the client
// (etcdclaims.Config.Drain) to return. If it returns earlier, with or without an error,
// the member calls it again under the same claim. The pause before that grows from 1 s to
// a minute.
//
// ctx carries the claim's token. Call fencing.Check(ctx) before each effect, and fence
// the effects.
type Handler func(ctx context.Context, partition int, claim *etcdclaims.Claim) error

// Member is a process's membership in a group. It is safe for concurrent use. End it with
// Leave. Close of the client does that, too: the member ends with etcdclaims.ErrClosed. A handler
// that does not return delays Close as it delays Leave.
type Member struct {
	claims  *etcdclaims.Client
	cfg     Config
	keys    keys
	handler Handler
	log     *zap.Logger
	view    *View
	earlier MemberInfo  // the process that this one replaced
	failed  atomic.Bool // Join has returned an error
	detach  func()      // from the client's Close

	ctx  context.Context // ends when the member begins to leave, with Err as its cause
	stop context.CancelCauseFunc
	wake chan struct{} // capacity 1: something is to be done
	done chan struct{} // closed when the member has left
	wg   sync.WaitGroup

	mu    sync.Mutex
	claim *etcdclaims.Claim // of the entry
	entry string            // value of the entry
	tried string            // value that was last tried to be put, maybe with a lost reply
	since int64             // revision of the entry
	life  time.Duration     // of a claim that is not renewed
	runs  map[int]*run      // by partition
	wants map[int]time.Time // by partition: since when the member waits for it, or last saw a line
	pause time.Duration     // until it joins again, if it took itself off the list
	fails int               // how often it did so since it claimed a partition
	seen  time.Time         // when its entry was put
	flaps int               // how often it was suspected soon after that

	hanging int           // handlers that made no progress, and have not returned
	moving  chan struct{} // closed when none hangs any more

	hurry bool // not to wait for successors

	watches  map[watched]context.CancelFunc
	stayed   chan struct{} // closed when the member does not join again
	gathered bool          // it waits no longer for others before it claims its first partitions
	leaving  bool
	leftAt   time.Time     // when its entry was gone
	poll     time.Duration // until the lines are read again
}

// Join makes the process a member of the group. It returns when the member is in the list
// and knows the others. The member then claims its partitions, and calls the handler for each
// one that it owns, on a goroutine of its own. While no partition has an owner, it first waits until
// no other process has joined for 100 ms, up to 1 s: processes that start together share out the
// partitions at once.
//
// ctx bounds the call, not the membership. The membership lasts until Leave, Close of the client,
// an eviction, or until another process joins with the same Name. A member that loses its
// claim, as in an outage of etcd, joins again by itself. The first Join does not: while etcd does not
// answer, it returns an error within 15 s, even if ctx lasts longer. Call it again then.
//
// An error describes the field of cfg that is invalid, is an *EvictedError, or matches
// ErrPartitions, etcdclaims.ErrPassthrough, etcdclaims.ErrClosed, or an error of
// Client.TryAcquire. Join fails if the client has joined the group already, until the Done of
// that Member is closed: use a client for each member. Join also fails if a later
// version of this package wrote the entry of a member of that name, the number of partitions,
// or an entry that this version cannot plan with.
func Join(ctx context.Context, claims *etcdclaims.Client, cfg Config, handler Handler) (*Member, error) {
	cfg, err := cfg.withDefaults(claims)
	err = cmp.Or(needsEtcd(claims, cfg.Group), err)
	if err == nil && handler == nil {
		err = fmt.Errorf("group %q: no handler", cfg.Group)
	}
	if err != nil {
		return nil, err
	}
	m := &Member{
		claims: claims, cfg: cfg, keys: newKeys(claims.Prefix(), cfg.Group), handler: handler,
		log:  cfg.Logger.With(zap.String("group", cfg.Group), zap.String("member", cfg.Name)),
		wake: make(chan struct{}, 1), done: make(chan struct{}), runs: make(map[int]*run),
		wants: make(map[int]time.Time), watches: make(map[watched]context.CancelFunc), stayed: make(chan struct{}),
	}
	m.ctx, m.stop = context.WithCancelCause(context.Background())
	defer m.await()()
	err = m.enlist(ctx)
	if err == nil {
		m.detach = attach.Of(claims).OnClose(func(closing context.Context) {
			m.stop(etcdclaims.ErrClosed)
			_ = m.Leave(closing) // the rest happens in the background, and ends with the claims
		})
		if err = m.Err(); err == nil { // the client is open
			err = m.register(ctx, false)
		}
		if err != nil {
			m.end()
		}
	}
	if err != nil {
		return nil, errtext.Wrap(fmt.Sprintf("join group %q as %q", cfg.Group, cfg.Name), attach.Of(claims).Explain(err))
	}
	since := m.since
	m.view = newView(claims, m.keys, cfg.Partitions, m.log)
	m.view.mu.Lock()
	m.view.known[m.earlier.Instance] = m.earlier
	m.view.mu.Unlock()
	m.wg.Go(m.stay)
	go m.run()
	if err := m.view.until(ctx, func() bool { return m.view.rev >= since && m.view.synced }); err != nil {
		m.failed.Store(true)
		err = errtext.Wrap(fmt.Sprintf("join group %q as %q", cfg.Group, cfg.Name), err)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*readTimeout)
		defer cancel()
		return nil, errors.Join(err, m.Leave(last))
	}
	return m, nil
}

// await has the client's report of an outage name the group until done is called.
func (m *Member) await() (done func()) { return attach.Of(m.claims).Await("group " + m.cfg.Group) }

// members has each Member of this process that has not ended yet, by its client and group.
var members sync.Map

type memberOf struct {
	claims *etcdclaims.Client
	group  string
}

func (m *Member) of() memberOf { return memberOf{m.claims, m.cfg.Group} }

// enlist makes the member the only one of its client in the group. If an earlier Join has
// failed, it waits until that one is undone.
func (m *Member) enlist(ctx context.Context) error {
	for {
		other, there := members.LoadOrStore(m.of(), m)
		if !there {
			return nil
		}
		earlier := other.(*Member)
		if !earlier.failed.Load() {
			return errJoined
		}
		select {
		case <-earlier.done:
		case <-ctx.Done():
			return fmt.Errorf("an earlier Join is not undone yet: %w", context.Cause(ctx))
		}
	}
}

// end lets the client join again.
func (m *Member) end() {
	m.detach()
	members.CompareAndDelete(m.of(), m)
	close(m.done)
}

// Name returns the member's name.
func (m *Member) Name() string { return m.cfg.Name }

// View returns the member's view of the group. It is closed when the member has left.
func (m *Member) View() *View { return m.view }

// Done returns a channel that is closed when the member has left, for whatever reason, and
// its handlers have returned. It waits for them for at most one TTL after their claims ended.
func (m *Member) Done() <-chan struct{} { return m.done }

// Err returns nil while the process is a member, or is about to join again after an
// outage. After that it returns why it leaves or has left: ErrLeft, ErrReplaced,
// ErrPartitions, etcdclaims.ErrClosed, or an *EvictedError.
func (m *Member) Err() error { return context.Cause(m.ctx) }

// Leave ends the membership. The member is taken off the list first. Then each partition is
// handed over to its next owner as soon as that member waits in line. A partition for which
// no member waits is released after 2 s. Handlers have the drain of the client to
// return. For handlers that take longer, Leave waits up to a TTL after their claims
// have ended.
//
// If ctx ends first, Leave returns an error. The contexts of all handlers end before that,
// without waiting for successors, and the rest happens in the background. Calling Leave
// again waits for the end, too.
func (m *Member) Leave(ctx context.Context) error {
	m.stop(ErrLeft)
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-m.done: // of two that are ready, the select above takes any
		return nil
	default:
	}
	m.mu.Lock()
	m.hurry = true
	m.mu.Unlock()
	m.giveUp(nil) // here too: the goroutine of run may wait for etcd
	m.rouse()
	return fmt.Errorf("leave group %q: handlers are still running: %w", m.cfg.Group, context.Cause(ctx))
}

// Admit implements fencing.Gate for requests that callers send to the owner of a partition,
// with the token of a Route. It admits the token of a claim that this member holds now,
// by its local clock. Other tokens are refused with a *fencing.StaleError, so that the
// caller looks for the owner anew; see [View.Call]. It does no I/O.
//
// A caller can know of a claim before its owner does, while etcd's reply to the owner is on its way.
// While the member waits for the partition, Admit therefore waits for its claim, up to 1 s.
//
// It is an early reject: the claim can end after Admit has returned.
func (m *Member) Admit(ctx context.Context, t fencing.Token) error {
	if err := t.Validate(); err != nil {
		return err
	}
	stale := &fencing.StaleError{Token: t}
	partition, ok := m.keys.partitionOf(t.Key)
	if !ok {
		return stale
	}
	m.mu.Lock()
	r := m.runs[partition]
	m.mu.Unlock()
	if r == nil {
		return stale
	}
	timer := time.NewTimer(admitTime)
	defer timer.Stop()
	select {
	case <-r.known:
	case <-timer.C:
	case <-ctx.Done():
	}
	m.mu.Lock()
	claim := r.claim
	m.mu.Unlock()
	switch {
	case claim == nil:
		return stale
	case claim.Fence() != t.Fence:
		stale.Newest = max(0, claim.Fence())
		return stale
	case claim.Check() != nil:
		return stale
	}
	return nil
}

// rouse makes the member check which steps are due.
func (m *Member) rouse() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// stay joins again each time that the entry is lost.
func (m *Member) stay() {
	defer close(m.stayed)
	for {
		m.mu.Lock()
		claim := m.claim
		m.mu.Unlock()
		select {
		case <-claim.Done():
		case <-m.ctx.Done():
			return
		}
		pause := m.restsAfter(claim)
		m.log.Warn("membership lost; joining again", zap.Duration("after", pause), zap.Error(claim.Err()))
		if !retry.Sleep(m.ctx, pause) || !m.untilMoving() {
			return
		}
		again := func(err error) bool {
			m.log.Debug("not joined", zap.Error(err))
			_, evicted := errors.AsType[*EvictedError](err)
			return !evicted && !errors.Is(err, ErrReplaced) && !errors.Is(err, ErrPartitions) && !errors.Is(err, etcdclaims.ErrClosed)
		}
		done := m.await()
		err := retry.Do(m.ctx, again, func() error { return m.register(m.ctx, true) })
		done()
		if err != nil {
			m.stop(err) // does nothing if the member has stopped already
			return
		}
		m.log.Info("joined again")
	}
}

// run carries out the steps that are due until the member has left.
func (m *Member) run() {
	defer m.end()
	defer m.view.Close()
	leaving := m.ctx.Done()
	left := make(chan struct{}) // closed when the entry is gone
	gone := left
	for {
		changed := m.view.news()
		timer := time.NewTimer(m.step())
		select {
		case <-changed:
			retry.Sleep(m.view.ctx, settleTime) // many partitions change hands at once
			m.poll = 0
		case <-m.wake:
		case <-timer.C:
		case <-leaving:
			leaving, m.leaving = nil, true
			m.log.Info("leaving", m.whyLeft())
			m.wg.Go(func() { defer close(left); m.depart() })
		case <-gone:
			gone, m.leftAt, m.poll = nil, clock.Mono(), 0
		}
		timer.Stop()
		m.mu.Lock()
		idle := len(m.runs) == 0
		m.mu.Unlock()
		if leaving == nil && idle {
			break
		}
	}
	<-left
	m.wg.Wait()
	m.erase(m.claim, true, m.tried, m.entry)
}

// mayReturn reports whether the member leaves in order, to be away.
func (m *Member) mayReturn() bool {
	err := m.Err()
	return m.cfg.Away > 0 && (errors.Is(err, ErrLeft) || errors.Is(err, etcdclaims.ErrClosed))
}

// whyLeft returns the log field with the reason why the member leaves: an error unless
// Leave was called.
func (m *Member) whyLeft() zap.Field {
	if err := m.Err(); !errors.Is(err, ErrLeft) {
		return zap.Error(err)
	}
	return zap.String("reason", "Leave was called")
}
