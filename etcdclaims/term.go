package etcdclaims

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/keyspace"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// term is one ownership of one key. The session's mutex guards what changes, unless the
// field says otherwise.
type term struct {
	s       *session
	key     string
	id      string // claim id
	fence   int64
	epoch   int64         // ModRevision of the epoch's key, or 0 if that key does not exist
	since   time.Time     // by the wall clock, for people
	granted clock.Reading // of a claim with MinHold
	put     *beside.Put   // what its attempt has put under the key beside it, or nil
	noticed bool          // it was handed over, by a notice that stays until it ends
	line    line          // the waiters behind it, as far as known
	slots   *slots        // of which it has one, or nil; only the goroutine that gives it up changes them
	shared  *sharing      // the record of the key that it shares, or nil; it does not change
	value   string        // of the shared claim

	suspectable bool // another may take the key if this client does not answer
	from        site
	preferring

	local localQueue // the callers of this client that wait for it, under localLine's mutex

	ctx       context.Context // nil until it is first needed
	cancel    context.CancelCauseFunc
	stopCause error // why its context ends, or would
	done      chan struct{}
	err       atomic.Pointer[error] // why it ended

	parting atomic.Int32 // how far it is given up, as Check sees it

	at      int     // place in the session's terms
	refs    int     // handles, for Reentrant
	begun   bool    // its first caller has it, or will have it at once: others may share it
	overdue bool    // its MaxHold passed while it was being given up
	wanted  bool    // it is to be released if that comes to nothing
	zombie  *taking // or to be lost like this, since its handler has outlived its drain
	phase   phase
	noteSeq int64
	noteRev int64 // ModRevision of the note as far as known, 0 if there is none
	noted   bool  // a note was sent
	min     time.Duration
	max     time.Duration // MaxHold, and its timer; see outlived
	limit   *time.Timer
	outcome State // in which its work is being recorded

	hooked    context.Context // for the hooks, or nil
	heldSince time.Duration   // of the client's uptime
	endedAt   time.Duration
	soft      *time.Timer // MaxHold less drain: the context ends
}

type phase int

const (
	phaseHeld   phase = iota
	phaseEnding       // its holder is giving it up: only the end of its session may make it lost
	phaseEnded
)

// How far a term is given up, as Check sees it without a lock: from before the
// first request is sent that may give the key away.
const (
	staying      int32 = iota
	leavingMaybe       // the end of work is under way, and can be refused
	leavingForGood
)

func tokenOf(key string, fence int64) fencing.Token { return fencing.Token{Key: key, Fence: fence} }

// attempt is the number of the attempt, of what has a key beside the claim.
func (t *term) attempt() int {
	if t.put == nil {
		return 0
	}
	return t.put.Number
}

// token names the key and the fence. A shared claim has those of the record. It has a
// key and a revision of its own, too, but they are only its guard.
func (t *term) token() fencing.Token {
	if t.shared != nil {
		return tokenOf(t.shared.key, keyspace.Fence(t.fence>>epochShift, t.shared.rev))
	}
	return tokenOf(t.key, t.fence)
}

// claim returns a handle of the term.
func (t *term) claim() *Claim { return &Claim{t: t, key: t.token().Key} }

func (t *term) fields(more ...zap.Field) []zap.Field {
	token := t.token()
	return append(more, zap.String("key", token.Key), zap.Int64("fence", token.Fence), zap.String("claim", t.id))
}

// guard is the condition that the term is still the owner: its revision; its lease,
// since a restore can repeat a revision, but not with this lease; the epoch, so
// that raising it ends all earlier terms; and the record of a key that it has in part.
func (t *term) guard() []clientv3.Cmp {
	l := t.s.c.store.layout
	own := l.own(t.key)
	cmps := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(own), "=", revision(t.fence)),
		clientv3.Compare(clientv3.LeaseValue(own), "=", int64(t.s.id)),
		clientv3.Compare(clientv3.ModRevision(l.epoch()), "=", t.epoch),
	}
	for _, cmp := range t.record().stands() {
		cmps = append(cmps, clientv3.FromCompare(cmp))
	}
	return cmps
}

// readOps reads why a guard failed.
func (t *term) readOps() []clientv3.Op {
	st := t.s.c.store
	ops := []clientv3.Op{
		clientv3.OpGet(st.layout.own(t.key)), // with its lease, which keys only would leave out
		clientv3.OpGet(st.layout.epoch()),
	}
	if record := t.record().name; record != nil {
		ops = append(ops, clientv3.OpGet(string(record)))
	}
	return ops
}

// owned judges what readOps read. False means that the term is lost.
func (t *term) owned(resp *clientv3.TxnResponse) bool {
	return t.judge(resp.Responses[0].GetResponseRange().Kvs) && t.judgeEpoch(resp.Responses[1].GetResponseRange().Kvs) &&
		(t.record().name == nil || t.judgeRecord(resp.Responses[2].GetResponseRange().Kvs))
}

// newTerm makes a granted claim part of its session and its client. It returns
// nil if the session died meanwhile, or the client is being closed.
func (s *session) newTerm(a *attempt, fence int64) *term {
	t := &term{
		s: s, key: a.key, id: a.id, fence: fence, epoch: a.epoch.Rev, since: a.since, put: a.put, noticed: a.noticed, line: a.line,
		done: make(chan struct{}), refs: 1, min: a.opts.minHold, max: a.opts.maxHold, noted: a.opts.note != nil,
		suspectable: a.opts.suspectable, preferring: a.opts.preferring, local: localQueue{closed: a.opts.prefers},
		from: a.opts.from,
	}
	if a.slots != nil {
		// It has the slot, so there was a record with as many. If that is another by
		// now, a hand-over is refused and reads it.
		own := *a.slots
		if own.unset = false; own.n <= own.i {
			own.n, own.raw = own.i+1, ""
		}
		t.slots = &own
	}
	if a.shared != nil {
		own := *a.shared
		if own.rev == 0 { // it has put the record itself
			own.rev = revision(fence)
		}
		t.shared, t.value = &own, a.value
	}
	if t.noted {
		t.noteSeq, t.noteRev = 1, revision(fence)
	}
	if t.min > 0 || t.max > 0 {
		t.granted = s.c.clock.Now()
	}
	if t.min > 0 {
		t.since = t.granted.Time()
	}
	t.heldSince = s.c.uptime()
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		return nil
	}
	if !s.c.keys.add(t, s.c.open) {
		s.mu.Unlock()
		return nil
	}
	s.reserved--
	t.at = len(s.terms)
	s.terms = append(s.terms, t)
	if d := t.max; d > 0 {
		drain := s.lease.Load().hard - s.lease.Load().soft
		t.soft = time.AfterFunc(max(d-drain, 0), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			t.stopLocked(&LostError{Token: t.token(), Reason: ReasonMaxHold})
		})
		t.limit = time.AfterFunc(d, t.tooLong)
	}
	s.mu.Unlock()
	return t
}

// context returns the context for work under the claim. It is made when it is first
// needed, because most claims for short work need none.
func (t *term) context() context.Context {
	t.s.mu.Lock()
	ctx := t.ctx
	t.s.mu.Unlock()
	if ctx != nil {
		return ctx
	}
	carried := t.s.c.events.context(t, context.Background())
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.ctx == nil {
		ctx := fencing.NewContext(carried, t.token())
		t.ctx, t.cancel = context.WithCancelCause(fencing.WithCheck(ctx, t.claim().Check))
		if t.stopCause != nil {
			t.cancel(t.stopCause)
		}
	}
	return t.ctx
}

// stopLocked ends the term's context; the session's mutex is held.
func (t *term) stopLocked(err error) {
	if t.stopCause == nil {
		t.stopCause = err
	}
	if t.cancel != nil {
		t.cancel(err)
	}
}

// endLocked ends the term with the error for good; the session's mutex is held.
func (t *term) endLocked(err error) bool {
	if t.phase == phaseEnded {
		return false
	}
	t.phase = phaseEnded
	if t.soft != nil {
		t.soft.Stop()
		t.limit.Stop()
	}
	if terms := t.s.terms; t.at < len(terms) && terms[t.at] == t {
		last := terms[len(terms)-1]
		terms[t.at], last.at = last, t.at
		terms[len(terms)-1] = nil
		t.s.terms = terms[:len(terms)-1]
		t.s.emptiedLocked()
	}
	t.endedAt = t.s.c.uptime()
	t.s.c.keys.remove(t)
	t.s.c.local.close(&t.local)
	t.err.Store(&err)
	t.stopLocked(err)
	close(t.done)
	return true
}

// loseLocked ends a held term as lost. One whose holder is giving it up is not
// lost by that, except with its whole session.
func (t *term) loseLocked(reason Reason, err error) *LostError {
	l := &LostError{Token: t.token(), Reason: reason, Err: err}
	if !t.endLocked(l) {
		return nil
	}
	t.s.c.stats.lost[reason].Add(1)
	return l
}

// lose ends a term that was found to be no longer this client's.
func (t *term) lose(reason Reason, err error) bool {
	t.s.mu.Lock()
	var l *LostError
	if t.phase == phaseHeld {
		l = t.loseLocked(reason, err)
	}
	t.s.mu.Unlock()
	if l == nil {
		return false
	}
	t.s.c.events.lost(t, l)
	t.clearAway()
	t.s.c.retireIdle(t.s)
	return true
}

// deleteNotice deletes the notice by which the term was handed over.
func (t *term) deleteNotice() clientv3.Op { return clientv3.OpDelete(t.noticeKey()) }

func (t *term) noticeKey() string {
	l := t.s.c.store.layout
	return l.notice(l.instance, t.id)
}

// judge compares the term with what etcd has under its key.
func (t *term) judge(kvs []*mvccpb.KeyValue) bool {
	switch {
	case len(kvs) == 0:
		t.lose(ReasonDeleted, nil)
	case kvs[0].ModRevision != revision(t.fence) || kvs[0].Lease != int64(t.s.id):
		t.overtaken()
	default:
		return true
	}
	return false
}

var errEpochRaised = errors.New("the epoch was raised, which ends all claims made before")

// judgeEpoch compares the term with the epoch's key.
func (t *term) judgeEpoch(kvs []*mvccpb.KeyValue) bool {
	rev := int64(0)
	if len(kvs) > 0 {
		rev = kvs[0].ModRevision
	}
	if rev == t.epoch {
		return true
	}
	if t.begin() == nil {
		// Its handler may still run for a while, so the key is not free at once.
		t.s.c.zombie(t, ReasonSuperseded, errEpochRaised)
	}
	return false
}

// ended returns why the term ended, or nil.
func (t *term) ended() error {
	if p := t.err.Load(); p != nil {
		return *p
	}
	return nil
}

// begin starts to give the term up: from here on only its holder, or the end of
// its session, ends it.
func (t *term) begin() error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.beginLocked()
}

func (t *term) beginLocked() error {
	switch t.phase {
	case phaseEnded:
		return t.ended()
	case phaseEnding:
		return ErrReleased
	}
	t.phase = phaseEnding
	t.parting.Store(leavingMaybe)
	return nil
}

// finish ends a term that was given up.
func (t *term) finish(err error) {
	t.s.mu.Lock()
	ended := t.endLocked(err)
	t.s.mu.Unlock()
	if ended {
		t.s.c.events.termEnded(t)
		t.s.c.retireIdle(t.s)
	}
}

// rests returns how long the key must still be held after its release, for its
// MinHold, by the clocks that cannot be stepped.
func (t *term) rests() time.Duration {
	if t.min == 0 {
		return 0
	}
	held, _ := t.s.c.clock.Now().Since(t.granted)
	return t.min - held
}
