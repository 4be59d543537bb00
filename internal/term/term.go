package term

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/ownwait"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/registry"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Given is what a call gives a term beside its key.
type Given struct {
	Since       time.Time   // when the call asked for the key, by the wall clock, for people
	Put         *beside.Put // what its attempt has put under the key beside it, or nil
	MinHold     time.Duration
	MaxHold     time.Duration
	Progress    time.Duration // its handler beats at least as often; 0: it need not
	Lazy        bool          // its release is not waited for
	Noted       bool          // a note was put with the claim
	Suspectable bool
	Prefers     bool // a release hands the key to the most preferred caller
	Preference  int
}

// Grant is a claim that was granted to an attempt.
type Grant struct {
	Given
	Try     *protocol.Try
	Rev     int64 // of the claim
	Session *lease.Session
	Noticed bool // it was handed over, by a notice that stays until it ends
	From    ownwait.Site
	Line    protocol.Line // the waiters behind it, as far as known
	Freed   func()        // called once a release was answered, so that the claim's key is there no more; or nil
}

// Term is one ownership of one key. Its methods are safe for concurrent use, except those that give it up: the phase
// has one goroutine do that.
type Term struct {
	registry.Holding // does not change, as Given does not
	Given
	lease.Seat

	terms   *Terms
	s       *lease.Session
	freed   func()        // as Grant.Freed
	granted clock.Reading // of a claim with MinHold or limits
	line    protocol.Line // of the goroutine that gives it up: the waiters behind it, as far as known
	local   Queue         // the callers of this client that wait for it, under the mutex of the local line

	done    chan struct{}
	err     atomic.Pointer[error] // why it ended
	parting atomic.Int32          // how far it is given up, as Check sees it

	mu     sync.Mutex // guards what follows
	work   work
	life   stage
	note   note
	heir   string   // the client that a release prefers to all others; empty for none
	limits []*limit // the list does not change
}

// work is the context for work under a term. It is made when it is first needed, because most claims for short work
// need none.
type work struct {
	ctx    context.Context // nil until then
	cancel context.CancelCauseFunc
	cause  error           // why it ends, or would
	hooked context.Context // that the hooks of its call have, or nil
}

// Add makes the term of a granted claim. It returns
// nil if the session died meanwhile, or the client is being closed.
func (ts *Terms) Add(g Grant) *Term {
	s := g.Session
	t := &Term{
		Holding: registry.Holding{Held: protocol.NewHeld(g.Try, g.Try.Epoch.Fence(g.Rev)), Since: ts.Uptime(), Noticed: g.Noticed, From: g.From},
		Given:   g.Given, terms: ts, s: s, line: g.Line, freed: g.Freed, local: Queue{Closed: g.Prefers},
		done: make(chan struct{}), life: stage{refs: 1},
	}
	if t.Noted {
		t.note = note{seq: 1, rev: g.Rev, sent: true}
	}
	if t.MinHold > 0 || t.MaxHold > 0 || t.Progress > 0 {
		t.granted = ts.Clock.Now()
	}
	if t.MinHold > 0 {
		t.Given.Since = t.granted.Time()
	}
	t.mu.Lock() // what ends it from now on waits until it is whole
	defer t.mu.Unlock()
	if !s.Add(t, func() bool { return ts.Keys.Add(t, &t.Holding, ts.Life.Open) }) {
		return nil
	}
	t.limitLocked()
	return t
}

// Queue returns the callers of this client that wait for the term. It is for the local line.
func (t *Term) Queue() *Queue { return &t.local }

// Session returns the session whose lease the claim is on.
func (t *Term) Session() *lease.Session { return t.s }

// Done is closed when the term has ended.
func (t *Term) Done() <-chan struct{} { return t.done }

// Err returns why the term ended, or nil.
func (t *Term) Err() error {
	if p := t.err.Load(); p != nil {
		return *p
	}
	return nil
}

// Standing returns why the claim is not held any more, or will not be.
func (t *Term) Standing() error {
	if err := t.Err(); err != nil {
		return err
	}
	if t.parting.Load() == leavingForGood {
		return claimerr.ErrReleased
	}
	return nil
}

// loss returns why the term is over.
func (t *Term) loss() error {
	if err := t.Err(); err != nil {
		return err
	}
	return claimerr.Loss{Reason: claimerr.Superseded}.Of(t.Token())
}

// IsLost reports whether the term was lost.
func (t *Term) IsLost() bool { return errors.Is(t.Err(), claimerr.ErrLost) }

// AskedAt returns when the call asked for the key, by the wall clock.
func (t *Term) AskedAt() time.Time { return t.Given.Since }

// Number is the number of the attempt, of what has a key beside the claim; else 0.
func (t *Term) Number() int { return t.Put.Attempt() }

// Fields returns the fields of the term for a log line.
func (t *Term) Fields(more ...zap.Field) []zap.Field {
	token := t.Token()
	return append(more, zap.String("key", token.Key), zap.Int64("fence", token.Fence), zap.String("claim", t.ID))
}

// Context returns the context for work under the claim.
func (t *Term) Context() context.Context {
	t.mu.Lock()
	ctx := t.work.ctx
	t.mu.Unlock()
	if ctx != nil {
		return ctx
	}
	carried := t.terms.Observer.Context(t, context.Background())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.work.ctx == nil {
		ctx := fencing.NewContext(carried, t.Token())
		t.work.ctx, t.work.cancel = context.WithCancelCause(fencing.WithCheck(ctx, t.Check))
		if t.work.cause != nil {
			t.work.cancel(t.work.cause)
		}
	}
	return t.work.ctx
}

// Stop ends the term's context.
func (t *Term) Stop(why claimerr.Loss) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopLocked(why.Of(t.Token()))
}

func (t *Term) stopLocked(err error) {
	if t.work.cause == nil {
		t.work.cause = err
	}
	if t.work.cancel != nil {
		t.work.cancel(err)
	}
}

// Follow sets the context that the hooks of the term's call have. It reports false if the term has ended.
func (t *Term) Follow(hooked context.Context) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life.phase == phaseEnded {
		return false
	}
	t.work.hooked = hooked
	return true
}

// Hooked returns the context that Follow was given, or nil.
func (t *Term) Hooked() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.work.hooked
}

// Found deals with the state in which the claim was found. False means that the term is lost.
func (t *Term) Found(s protocol.State) bool {
	switch s {
	case protocol.Kept:
		return true
	case protocol.Deleted:
		t.TakeAway(claimerr.Loss{Reason: claimerr.Deleted})
	case protocol.Replaced:
		if t.TakeAway(claimerr.Loss{Reason: claimerr.Superseded}) { // by an owner whose notice has not come
			t.missedNews()
		}
	case protocol.EpochRaised:
		if t.beginLoss() == nil {
			// Its handler may still run for a while, so the key is not free at once.
			t.Zombie(claimerr.Loss{Reason: claimerr.Superseded, Err: errEpochRaised})
		}
	case protocol.RecordDeleted:
		t.withoutRecord(claimerr.Deleted)
	case protocol.RecordReplaced:
		t.withoutRecord(claimerr.Superseded)
	}
	return false
}

var errEpochRaised = errors.New("the epoch was raised, which ends all claims made before")

// withoutRecord ends a term whose record is gone.
func (t *Term) withoutRecord(reason claimerr.Reason) {
	if !t.Mode.Guard(t.Fence).Unchanged {
		if t.beginLoss() == nil { // its handler may still run for a while, so the key is not free at once
			t.Zombie(claimerr.Loss{Reason: reason})
		}
	} else if t.TakeAway(claimerr.Loss{Reason: reason}) { // its own key would count as that of a holder
		t.s.CleanUp("deleting a shared claim without its record", t.delete)
	}
}

// Owned judges the reply to a request that begins with the reads of protocol.Owner. False means
// that the term is lost.
func (t *Term) Owned(resp *clientv3.TxnResponse) bool {
	return t.Found(protocol.Owner{Held: &t.Held}.Judge((*pb.TxnResponse)(resp)))
}

// missedNews notes that the watch has not delivered what concerns the term. If others may suspect
// its holder, the watch may be deaf for their questions, too: it begins anew.
func (t *Term) missedNews() {
	if t.Suspectable {
		t.terms.Store.Generation.Advance()
	}
}

// restLeft returns how long the key must still be held after its release, for its
// MinHold, by the clocks that cannot be stepped.
func (t *Term) restLeft() time.Duration {
	if t.MinHold == 0 {
		return 0
	}
	held, _ := t.terms.Clock.Now().Since(t.granted)
	return t.MinHold - held
}

// epoch returns the epoch of the claim's fence.
func (t *Term) epoch() int64 { return keyspace.Epoch(t.Fence) }
