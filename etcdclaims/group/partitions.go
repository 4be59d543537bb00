package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/retry"
	"go.uber.org/zap"
)

// run is one partition that the member waits for or owns.
type run struct {
	partition int
	ctx       context.Context // ends when the member has to give the partition up
	stop      context.CancelCauseFunc
	known     chan struct{} // closed when the member knows its claim
	ended     chan struct{} // closed when the member does not wait for the run any more

	// Guarded by Member.mu:
	claim    *etcdclaims.Claim // nil while the member waits for the partition
	hangs    bool              // its handler made no progress, and lost the claim
	returned bool              // no handler of it runs any more
}

const (
	// successorTime is how long a member that leaves waits for its successors.
	successorTime = 2 * time.Second
	mostPoll      = time.Second
	admitTime     = time.Second // how long Admit waits for the reply to a claim
	rest          = time.Hour   // there is nothing to do until something changes
)

var (
	errMoved       = errors.New("partition moves to another member")
	handlerBackoff = etcdclaims.ExponentialBackoff(time.Second, time.Minute)
)

// step claims the partitions of which the member is the target, and gives up others. It
// returns when the next step is due if nothing changes.
func (m *Member) step() time.Duration {
	v := m.view
	v.mu.Lock()
	a, known := v.assignment(), v.rev > 0 && v.synced
	entry, there := v.members[m.cfg.Name]
	next := v.successor(m.cfg.Name, a.Members)
	evicted, rev, entered := v.evicted[m.cfg.Name], v.rev, v.revs[m.cfg.Name]
	resized, spec := v.resized(), v.list.spec.there
	v.mu.Unlock()
	m.mu.Lock()
	claim, since, hurry, pause, hanging := m.claim, m.since, m.hurry, m.pause, m.hanging
	m.mu.Unlock()
	in := there && entry.Instance == m.claims.Instance()
	switch {
	case m.leaving && (hurry || !known):
		m.giveUp(nil)
		return rest
	case m.leaving && m.leftAt.IsZero(): // no other member can be in line yet
		m.leaveLines(nil)
		return rest
	case m.leaving:
		return m.handOver(a, in)
	case !known:
		return rest
	case resized > 0:
		m.stop(fmt.Errorf("%w: it was made anew with %d, Config.Partitions is %d", ErrPartitions, resized, m.cfg.Partitions))
		return rest
	case evicted != nil:
		m.stop(evicted)
		return rest
	case rev < since: // the view is from before the member joined
		return rest
	case there && !in && entry.Instance != "" && entered > since:
		m.stop(ErrReplaced)
		return rest
	case pause > 0:
		m.watchOver(Assignment{}, watched{})
		return rest
	case !in: // an operator removed the entry, its lease is gone, or etcd was restored
		if claim.Err() == nil {
			m.release(claim)
		}
		return rest
	}
	var again time.Duration = rest
	if !spec {
		again = m.restoreSpec(claim)
	}
	m.watchOver(a, next)
	if !m.gathered {
		if wait := m.view.gathering(a, m.claims.Instance()); wait > 0 {
			return min(again, wait)
		}
		m.gathered = true
	}
	plan := Balance(a.Members, a.owned())
	for partition, name := range plan.Target {
		if name == m.cfg.Name {
			m.start(partition)
		}
	}
	if hanging > 0 {
		m.withdraw(claim, "partition handlers hang")
		return rest
	}
	deaf, check := m.deaf(plan.Target)
	if deaf {
		m.withdraw(claim, "partitions cannot be claimed")
		return rest
	}
	offers, wait := m.offers(a, plan)
	m.leaveLines(plan.Target)
	return min(again, wait, check, m.deliver(m.ctx, offers))
}

// handOver gives up all partitions of a member that leaves, each when its target waits in
// line, or has had time to join it.
func (m *Member) handOver(a Assignment, in bool) time.Duration {
	var others []MemberInfo
	for _, other := range a.Members {
		if !in || other.Name != m.cfg.Name {
			others = append(others, other)
		}
	}
	if in && m.mayReturn() { // its partitions are reserved
		others = nil
	}
	left := time.Until(m.leftAt.Add(successorTime))
	target := Balance(others, a.owned()).Target
	instances := instancesOf(others)
	offers := make(map[int]string)
	if left > 0 {
		for partition, name := range target {
			if to := instances[name]; to != "" {
				offers[partition] = to
			}
		}
	}
	m.giveUp(offers)
	if left <= 0 {
		return rest
	}
	ctx, cancel := context.WithTimeout(m.view.ctx, left)
	defer cancel()
	return min(m.deliver(ctx, offers), left)
}

// offers returns the instances to which partitions of this member may move now, and how long
// it is until there may be more. All members agree on which moves come first, so each
// knows which ones are within the budget of the group.
func (m *Member) offers(a Assignment, plan Plan) (offers map[int]string, wait time.Duration) {
	instances := instancesOf(a.Members)
	offers, wait = make(map[int]string), rest
	room := len(plan.Moves)
	if m.cfg.MaxMoves > 0 {
		if wait := m.view.agreed(m.cfg.MoveInterval); wait > 0 {
			return offers, wait // others may have another order of moves
		}
		room = m.cfg.MaxMoves - m.view.moved(m.cfg.MoveInterval, m.cfg.MaxMoves)
	}
	for _, move := range plan.Moves {
		to := instances[move.To]
		if a.Owners[move.Partition].Member != move.From || move.From == "" || to == "" {
			continue // it has no owner, or it is reserved; or its target is away
		}
		if room--; room < 0 {
			return offers, min(wait, m.cfg.MoveInterval/8+time.Millisecond)
		}
		if move.From != m.cfg.Name {
			continue
		}
		if cooling := m.view.cooling(m.cfg.Cooldown, move.Partition, to); cooling > 0 {
			wait = min(wait, cooling)
			continue
		}
		offers[move.Partition] = to
	}
	return offers, wait
}

// instancesOf returns the instance of each member, by name.
func instancesOf(members []MemberInfo) map[string]string {
	out := make(map[string]string, len(members))
	for _, m := range members {
		out[m.Name] = m.Instance
	}
	return out
}

// start begins to wait for a partition, unless the member does already.
func (m *Member) start(partition int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.runs[partition]; r != nil {
		return
	}
	r := &run{partition: partition, known: make(chan struct{}), ended: make(chan struct{})}
	r.ctx, r.stop = context.WithCancelCause(context.Background())
	m.runs[partition] = r
	if _, waits := m.wants[partition]; !waits {
		m.wants[partition] = clock.Mono()
	}
	go m.work(r)
}

// leaveLines leaves the lines of partitions that are not to be the member's, of all if target is
// nil. The member keeps the partitions that it owns.
func (m *Member) leaveLines(target []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for partition, r := range m.runs {
		if r.claim == nil && (target == nil || target[partition] != m.cfg.Name) {
			r.stop(errMoved)
		}
	}
}

// giveUp leaves all lines, and gives up all partitions that are not on offer.
func (m *Member) giveUp(offers map[int]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for partition, r := range m.runs {
		if r.claim == nil || offers[partition] == "" {
			r.stop(errMoved)
		}
	}
}

// deliver gives up those of the offered partitions whose target is the first in line, so that
// the release hands the partition to it. It returns when to look
// again.
func (m *Member) deliver(ctx context.Context, offers map[int]string) time.Duration {
	byKey := make(map[string]*run)
	m.mu.Lock()
	for partition := range offers {
		if r := m.runs[partition]; r != nil && r.claim != nil && r.ctx.Err() == nil {
			byKey[m.keys.partition(partition)] = r
		}
	}
	m.mu.Unlock()
	if len(byKey) == 0 {
		return rest
	}
	all := make([]string, 0, len(byKey))
	for key := range byKey {
		all = append(all, key)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for line, err := range admin.Lines(ctx, m.claims, all) {
		if err != nil {
			m.log.Debug("lines not read", zap.Error(err))
			break
		}
		if r := byKey[line.Key]; line.Next.Instance == offers[r.partition] {
			r.stop(errMoved)
			delete(byKey, line.Key)
		}
	}
	if len(byKey) == 0 {
		return rest
	}
	m.poll = min(max(2*m.poll, 50*time.Millisecond), mostPoll)
	return m.poll
}

// work waits for a partition, and calls its handler while the member owns it.
func (m *Member) work(r *run) {
	defer m.forget(r)
	claim, err := m.claims.Acquire(r.ctx, m.keys.partition(r.partition), option.OwnKey{},
		etcdclaims.TTL(m.cfg.TTL), etcdclaims.Progress(m.cfg.Progress))
	if err != nil {
		if errors.Is(err, etcdclaims.ErrClosed) {
			m.stop(etcdclaims.ErrClosed)
		} else if r.ctx.Err() == nil {
			m.log.Warn("partition not claimed; retrying", zap.Int("partition", r.partition), zap.Error(err))
			retry.Sleep(r.ctx, time.Second)
		}
		return
	}
	m.mu.Lock()
	r.claim, m.fails, m.life = claim, 0, max(m.life, claim.Remaining())
	delete(m.wants, r.partition)
	close(r.known)
	m.mu.Unlock()
	m.rouse() // it may not be wanted any more
	var cause error
	err = claim.Run(r.ctx, func(ctx context.Context) error {
		cause = m.serve(ctx, r)
		return nil
	})
	if err != nil && r.ctx.Err() == nil {
		m.log.Debug("partition lost", zap.Int("partition", r.partition), zap.Int64("fence", claim.Fence()), zap.Error(err))
	}
	if cause != nil && m.cfg.Hooks.Stopped != nil {
		m.cfg.Hooks.Stopped(r.partition, claim.Token(), cause)
	}
}

// serve calls the handler until ctx ends, and returns why it ended.
func (m *Member) serve(ctx context.Context, r *run) (cause error) {
	if hook := m.cfg.Hooks.Started; hook != nil {
		hook(r.partition, r.claim.Token())
	}
	defer m.returns(r)
	defer context.AfterFunc(ctx, func() { m.expect(r) })()
	for try := 1; ; try++ {
		begin := clock.Mono()
		err := m.handler(ctx, r.partition, r.claim)
		if err := r.claim.Err(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Since(begin) > time.Minute {
			try = 1
		}
		pause := handlerBackoff(min(try, 8))
		m.log.Warn("partition handler returned; it is called again", zap.Int("partition", r.partition), zap.String("key", r.claim.Key()),
			zap.Int64("fence", r.claim.Fence()), zap.Int("attempt", try), zap.Duration("after", pause), zap.Error(err))
		if !retry.Sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// expect gives a handler whose context has ended time to return: until the claim has
// ended, and as long again as a lease lasts. After that the partition no longer waits for it.
// What the handler then writes is refused by its fence.
func (m *Member) expect(r *run) {
	select {
	case <-r.claim.Done():
	case <-r.ended:
		return
	}
	m.hangs(r)
	m.mu.Lock()
	life := m.life
	m.mu.Unlock()
	timer := time.NewTimer(life)
	defer timer.Stop()
	select {
	case <-timer.C:
		m.log.Error("partition handler does not return; the partition goes on without it", zap.Int("partition", r.partition),
			zap.String("key", r.claim.Key()), zap.Int64("fence", r.claim.Fence()))
		m.forget(r)
	case <-r.ended:
	}
}

// forget ends a run.
func (m *Member) forget(r *run) {
	r.stop(nil)
	m.mu.Lock()
	if m.runs[r.partition] == r {
		close(r.ended)
		delete(m.runs, r.partition)
	}
	m.mu.Unlock()
	m.rouse()
}

var _ fencing.Gate = (*Member)(nil)
