package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Claim is the ownership of one key for one term. It ends when it is released
// or lost, and never comes back. A claim of a passthrough client has fence 0
// and does not expire.
type Claim struct {
	t        *term // nil: passthrough
	key      string
	owner    beside.Owner // ends it in place of its own methods, or nil
	released atomic.Bool  // this handle, of perhaps several
}

// Key returns the claimed key. For a claim with Slots it is that of the slot; see
// SlotKey.
func (cl *Claim) Key() string { return cl.key }

// Slot returns the number of the claim's slot, from 0 on. It is 0 for a claim
// without Slots.
func (cl *Claim) Slot() int {
	if cl.t == nil {
		return 0
	}
	return cl.t.Mode.Keys().Slot
}

// Fence returns the fence of this term. Each later exclusive term of the key has a
// greater fence. Claims with Shared that hold the key at the same time have the same
// fence. It is 0 for a passthrough claim.
func (cl *Claim) Fence() int64 {
	if cl.t == nil {
		return 0
	}
	return cl.t.Token().Fence
}

// Revision returns the etcd revision of the transaction that made the claim:
// the fence without the epoch, except for a claim with Shared. It is the
// ModRevision of every key that an operation of Then wrote, until the key is
// written again. It is 0 for a passthrough claim.
func (cl *Claim) Revision() int64 {
	if cl.t == nil {
		return 0
	}
	return revision(cl.t.Fence)
}

// Token returns the key and the fence, to be sent along with requests.
func (cl *Claim) Token() fencing.Token { return tokenOf(cl.key, cl.Fence()) }

// Owner returns Config.Owner, the label of the owner. It is empty for a
// passthrough claim.
func (cl *Claim) Owner() string {
	if cl.t == nil {
		return ""
	}
	return cl.t.s.c.cfg.Owner
}

// ID returns the identity of this term, a UUID that Info.Claim shows. It is
// empty for a passthrough claim.
func (cl *Claim) ID() string {
	if cl.t == nil {
		return ""
	}
	return cl.t.ID
}

// Context returns a context that carries the token. It ends one drain
// (Config.Drain) before the claim's deadline, or as soon as the claim is lost
// or released. Its cause is a *LostError or ErrReleased.
//
// A context that ended because renewals were late stays ended, even if a
// renewal succeeds later: finish and release the claim.
//
// The end of the context is a hint. A process that was paused sees it late.
// Call Check (or fencing.Check with the context) before each effect, and fence
// the effect.
func (cl *Claim) Context() context.Context {
	if cl.t == nil {
		return fencing.NewContext(context.Background(), cl.Token())
	}
	return cl.t.context()
}

// Bind returns a context derived from ctx that carries the token. The context
// also ends when the claim's context ends. Called with it, fencing.Check calls
// the claim's Check. Call the CancelFunc when the context is not needed any
// more.
func (cl *Claim) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = fencing.NewContext(ctx, cl.Token())
	if cl.t == nil {
		ctx, cancel := context.WithCancelCause(ctx)
		return ctx, func() { cancel(nil) }
	}
	ctx, cancel := context.WithCancelCause(fencing.WithCheck(cl.t.s.c.events.context(cl.t, ctx), cl.Check))
	own := cl.t.context()
	stop := context.AfterFunc(own, func() { cancel(context.Cause(own)) })
	if own.Err() != nil { // at once: AfterFunc calls in a goroutine of its own
		cancel(context.Cause(own))
	}
	return ctx, func() { stop(); cancel(nil) }
}

// Done returns a channel that is closed when the claim is lost or released. It
// is nil for a passthrough claim.
func (cl *Claim) Done() <-chan struct{} {
	if cl.t == nil {
		return nil
	}
	return cl.t.done
}

// Err returns nil while the claim is held as far as the client knows. After
// that it returns a *LostError or ErrReleased. It does no I/O.
func (cl *Claim) Err() error {
	if cl.t != nil {
		if err := cl.t.ended(); err != nil {
			return err
		}
	}
	if cl.released.Load() || cl.t != nil && cl.t.parting.Load() == leavingForGood {
		return ErrReleased
	}
	return nil
}

// Deadline returns when the claim expires unless it is renewed. Use it to show
// the time or to set a timeout; use Check to decide whether the claim is held.
// It is in the past once the claim has ended, and zero for a passthrough claim.
func (cl *Claim) Deadline() time.Time {
	if cl.t == nil {
		return time.Time{}
	}
	return time.Now().Add(cl.Remaining()) //nolint:forbidigo // for contexts and timers, which go by this clock
}

// Remaining returns how long the claim lasts unless it is renewed. It is 0
// once the claim has ended. For a passthrough claim it is the longest
// duration.
func (cl *Claim) Remaining() time.Duration {
	if cl.t == nil {
		return 1<<63 - 1
	}
	if cl.Err() != nil {
		return 0
	}
	left, wallSaysOver := cl.t.s.left()
	if wallSaysOver {
		return 0
	}
	return max(left, 0)
}

// Check returns nil if the claim is held now, by the clock of this machine.
// Call it right before each effect. It does no I/O. Otherwise the error
// matches:
//
//   - ErrLost if the claim is lost or has expired.
//   - ErrReleased while the claim is being released, from before the first
//     request is sent, and after that.
//   - ErrUnknown if only the wall clock has passed the deadline, for example
//     because it was set. The error lasts until a renewal has verified the
//     claim.
//
// Check succeeds again if the claim is still held because [Claim.ReleaseWith] or the end of its
// work was refused.
//
// Check of a claim with [Suspectable] can succeed while the next owner already
// works, until the deadline: only the fence refuses the effects of the old owner.
func (cl *Claim) Check() error {
	wallSaysOver, err := cl.checkSure()
	if err == nil && cl.t != nil && cl.t.parting.Load() != staying {
		return callError("check", cl.key, fmt.Errorf("the claim (fence %d) is being given up: %w", cl.Fence(), ErrReleased))
	}
	if wallSaysOver {
		return callError("check", cl.key, fmt.Errorf("the wall clock jumped past the deadline of the claim (fence %d), which is being verified: %w", cl.Fence(), ErrUnknown))
	}
	return err
}

// checkSure is Check by the clocks that cannot be stepped. It is enough for what
// carries its guard to etcd, which judges by no clock of this machine.
func (cl *Claim) checkSure() (wallSaysOver bool, err error) {
	if err := cl.Err(); err != nil || cl.t == nil {
		return false, err
	}
	if cl.t.overMax() {
		cl.t.tooLong() // the process was stopped, or the machine slept, when the timer should have fired
		if err := cl.Err(); err != nil {
			return false, err
		}
	}
	left, wallSaysOver := cl.t.s.left()
	if left <= 0 {
		cl.t.s.enforce() // the process was stopped when the timer should have fired
		if err := cl.t.ended(); err != nil {
			return false, err
		}
		return false, &LostError{Token: cl.Token(), Reason: ReasonExpired}
	}
	if wallSaysOver {
		cl.t.s.renewSoon()
	}
	return wallSaysOver, nil
}

// Owns reads from etcd whether the claim is still the owner of its key. If it
// is not, the claim is lost. After an error the owner is not known. ctx and
// the claim's deadline bound the read.
func (cl *Claim) Owns(ctx context.Context) (bool, error) {
	if err := cl.Err(); err != nil {
		return false, nil
	}
	if cl.t == nil {
		return true, nil
	}
	ctx, cancel := cl.t.s.within(ctx)
	defer cancel()
	resp, err := cl.t.s.c.read(ctx, txn.OpsOf(protocol.Owner{Held: &cl.t.Held}.Reads())...)
	if err != nil {
		return false, callError("look up the owner of", cl.key, err)
	}
	return cl.t.owned(resp) && cl.Check() == nil, nil
}

// within bounds a request on a claim's behalf by the claim's deadline.
func (s *session) within(ctx context.Context) (context.Context, context.CancelFunc) {
	left, _ := s.left()
	return context.WithTimeoutCause(ctx, max(left, 0), errDeadlinePassed)
}

// errDeadlinePassed does not repeat the text of the error that it matches: that is part of the
// request's own.
var errDeadlinePassed = errtext.Namesake("the claim's deadline passed", context.DeadlineExceeded)

// hurried is within if the deadline is near enough for one request to miss it. After a sleep
// of the machine it may not notice that: then the request has its own timeout alone.
func (s *session) hurried(ctx context.Context) (context.Context, context.CancelFunc) {
	if g := s.lease.Load(); g.hard-g.t0.Awake() < 2*s.c.store.Timeout() {
		return s.within(ctx)
	}
	return ctx, func() {}
}

// Guard returns the conditions that hold while the claim owns its key, for the
// caller's own transactions. Use all of them together: a part of them can hold
// for another owner. If such a transaction fails, the caller must find
// out whether the claim was lost or another condition failed. [Claim.Txn] does
// that itself.
//
// The claim of a passthrough client excludes no other caller: its conditions are always true.
func (cl *Claim) Guard() []clientv3.Cmp {
	if cl.t == nil {
		return []clientv3.Cmp{clientv3.Compare(clientv3.Version("\x00"), ">", -1)} // always true
	}
	return conditions(cl.t.Held.Guard())
}

// Note stores a note about the progress of the claim, for people and
// successors. It replaces the previous note, and is deleted with the claim.
// The claim's own key is not written, so the fence stays the same.
//
// A note longer than MaxNoteBytes returns ErrTooLarge. ctx and the claim's
// deadline bound the call.
func (cl *Claim) Note(ctx context.Context, b []byte) error {
	if err := checkNote(b); err != nil {
		return callError("note", cl.key, err)
	}
	if _, err := cl.checkSure(); err != nil {
		return cl.afterRelease("note", err)
	}
	if cl.t == nil {
		return nil
	}
	return cl.afterRelease("note", cl.t.setNote(ctx, b))
}

func checkNote(note []byte) error {
	if len(note) > MaxNoteBytes {
		return fmt.Errorf("%w: a note of %d bytes, the limit is %d: store it elsewhere and note where", ErrTooLarge, len(note), MaxNoteBytes)
	}
	return nil
}

// setNote lets no late request overwrite a younger note: each expects the note
// that it follows.
func (t *term) setNote(ctx context.Context, b []byte) error {
	st := t.s.c.store
	ctx, cancel := t.s.within(ctx)
	defer cancel()
	t.s.mu.Lock()
	if t.phase != phaseHeld {
		t.s.mu.Unlock()
		if err := t.ended(); err != nil {
			return err
		}
		return ErrReleased // it is being given up
	}
	t.noted = true
	t.noteSeq++
	seq, rev := t.noteSeq, t.noteRev
	t.s.mu.Unlock()
	value := protocol.NewNote(seq, b)
	sent := false // a request that may have been carried out
	for try := 0; ; try++ {
		step := protocol.WriteNote{Held: &t.Held, Value: value, After: rev}
		resp, err := st.Do(ctx, step.Build())
		switch {
		case err == nil:
			noted := step.Judge((*pb.TxnResponse)(resp))
			if !t.found(noted.State) {
				return t.lost()
			}
			rev = noted.Rev
			t.s.mu.Lock()
			t.noteRev = max(t.noteRev, rev)
			overtaken := t.noteSeq > seq
			t.s.mu.Unlock()
			if noted.Done || overtaken {
				return nil // or a younger note is there, or on its way
			}
			continue
		case t.s.gone(ctx, err, false):
			return t.lost()
		case errors.Is(err, ErrUnknown) || txn.IsTransient(err):
			sent = sent || errors.Is(err, ErrUnknown)
			if retry.PauseUnless(ctx, t.done, try) {
				continue
			}
			fallthrough
		default:
			return callError("note", t.Token().Key, afterSent(sent, err))
		}
	}
}

// lost returns why the term is over.
func (t *term) lost() error {
	if err := t.ended(); err != nil {
		return err
	}
	return &LostError{Token: t.Token(), Reason: ReasonSuperseded}
}

// Renew renews the claim's lease and verifies every claim on it. A Manual
// claim needs it as its heartbeat; the client renews all other claims itself.
// Renew retries until ctx ends or the claim is lost. When it returns nil, the
// deadline has moved.
func (cl *Claim) Renew(ctx context.Context) error {
	if err := cl.Err(); err != nil {
		return cl.afterRelease("renew", err)
	}
	if cl.t == nil {
		return nil
	}
	ctx, cancel := cl.t.s.within(ctx)
	defer cancel()
	err := cl.t.s.renewVerified(ctx)
	if ended := cl.Err(); ended != nil {
		return cl.afterRelease("renew", ended)
	}
	if err != nil {
		return callError("renew", cl.key, err)
	}
	return nil
}
