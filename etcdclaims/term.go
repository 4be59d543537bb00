package etcdclaims

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/registry"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// term is one ownership of one key. The session's mutex guards what changes, unless the
// field says otherwise.
type term struct {
	registry.Holding

	s       *session
	since   time.Time     // by the wall clock, for people
	granted clock.Reading // of a claim with MinHold
	put     *beside.Put   // what its attempt has put under the key beside it, or nil
	line    protocol.Line // the waiters behind it, as far as known

	given optionSet // the options of its call
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
	outcome string // of its end, as observers see it

	hooked  context.Context // for the hooks, or nil
	endedAt time.Duration
	soft    *time.Timer // MaxHold less drain: the context ends
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
	leavingMaybe       // an end that can be refused is under way
	leavingForGood
)

func tokenOf(key string, fence int64) fencing.Token { return fencing.Token{Key: key, Fence: fence} }

// claim returns a handle of the term.
func (t *term) claim() *Claim { return &Claim{t: t, key: t.Token().Key} }

func (t *term) fields(more ...zap.Field) []zap.Field {
	token := t.Token()
	return append(more, zap.String("key", token.Key), zap.Int64("fence", token.Fence), zap.String("claim", t.ID))
}

// found deals with the state in which the claim was found. False means that the term is lost.
func (t *term) found(s protocol.State) bool {
	switch s {
	case protocol.Kept:
		return true
	case protocol.Deleted:
		t.lose(ReasonDeleted, nil)
	case protocol.Replaced:
		if t.lose(ReasonSuperseded, nil) { // by an owner whose notice has not come
			t.missedNews()
		}
	case protocol.EpochRaised:
		if t.beginLoss() == nil {
			// Its handler may still run for a while, so the key is not free at once.
			t.s.c.zombie(t, ReasonSuperseded, errEpochRaised)
		}
	case protocol.RecordDeleted:
		t.withoutRecord(ReasonDeleted)
	case protocol.RecordReplaced:
		t.withoutRecord(ReasonSuperseded)
	}
	return false
}

// withoutRecord ends a term whose record is gone.
func (t *term) withoutRecord(reason Reason) {
	if !t.Mode.Guard(t.Fence).Unchanged {
		if t.beginLoss() == nil { // its handler may still run for a while, so the key is not free at once
			t.s.c.zombie(t, reason, nil)
		}
	} else if t.lose(reason, nil) { // its own key would count as that of a holder
		t.s.c.cleanUp(t.s, "deleting a shared claim without its record", t.delete)
	}
}

// owned judges the reply to a request that begins with the reads of protocol.Owner. False means
// that the term is lost.
func (t *term) owned(resp *clientv3.TxnResponse) bool {
	return t.found(protocol.Owner{Held: &t.Held}.Judge((*pb.TxnResponse)(resp)))
}

// newTerm makes a granted claim part of its session and its client. It returns
// nil if the session died meanwhile, or the client is being closed.
func (s *session) newTerm(a *attempt, fence int64) *term {
	t := &term{
		Holding: registry.Holding{Held: protocol.NewHeld(&a.Try, fence), Since: s.c.uptime(), Noticed: a.noticed, From: a.opts.from},
		s:       s, since: a.since, put: a.put, line: a.line,
		done: make(chan struct{}), refs: 1, min: a.opts.minHold, max: a.opts.maxHold, noted: a.opts.note != nil,
		given: a.opts.given, preferring: a.opts.preferring, local: localQueue{Closed: a.opts.prefers},
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
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		return nil
	}
	if !s.c.keys.Add(t, &t.Holding, s.c.open) {
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
			t.stopLocked(&LostError{Token: t.Token(), Reason: ReasonMaxHold})
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
		ctx := fencing.NewContext(carried, t.Token())
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
	t.s.c.keys.Remove(t, t.Key)
	t.s.c.local.Close(&t.local)
	t.err.Store(&err)
	t.stopLocked(err)
	close(t.done)
	return true
}

// loseLocked ends a held term as lost. One whose holder is giving it up is not
// lost by that, except with its whole session.
func (t *term) loseLocked(reason Reason, err error) *LostError {
	l := &LostError{Token: t.Token(), Reason: reason, Err: err}
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

var errEpochRaised = errors.New("the epoch was raised, which ends all claims made before")

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
