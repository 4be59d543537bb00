package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Claim is the ownership of one key for one term. It ends when it is released
// or lost, and never comes back. A claim of a passthrough client has fence 0
// and does not expire.
//
// A claim that the program drops without Release stays held: the client renews it until Close, or until
// its MaxHold or Progress ends it.
type Claim struct {
	t        *term.Term // nil: passthrough
	key      string
	owner    beside.Owner // ends it in place of its own methods, or nil
	released atomic.Bool  // this handle, of perhaps several
	c        *Client      // nil: passthrough
}

// claim returns a handle of a term.
func (c *Client) claim(t *term.Term) *Claim { return &Claim{t: t, key: t.Token().Key, c: c} }

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
	return keyspace.Revision(cl.t.Fence)
}

// Token returns the key and the fence, to be sent along with requests.
func (cl *Claim) Token() fencing.Token { return fencing.Token{Key: cl.key, Fence: cl.Fence()} }

// Owner returns Config.Owner, the label of the owner. It is empty for a
// passthrough claim.
func (cl *Claim) Owner() string {
	if cl.t == nil {
		return ""
	}
	return cl.c.cfg.Owner
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
	return cl.t.Context()
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
	ctx, cancel := context.WithCancelCause(fencing.WithCheck(cl.c.events.Context(cl.t, ctx), cl.Check))
	own := cl.t.Context()
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
	return cl.t.Done()
}

// Err returns nil while the claim is held as far as the client knows. After
// that it returns a *LostError or ErrReleased. It does no I/O.
func (cl *Claim) Err() error {
	if cl.t != nil {
		if err := cl.t.Standing(); err != nil {
			return err
		}
	}
	if cl.released.Load() {
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
	left, wallSaysOver := cl.t.Session().Left()
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
	if cl.t == nil || cl.released.Load() {
		return cl.Err()
	}
	return cl.t.Check()
}

// checkSure is Check by the clocks that cannot be stepped. It is enough for what
// carries its guard to etcd, which judges by no clock of this machine.
func (cl *Claim) checkSure() error {
	if cl.t == nil || cl.released.Load() {
		return cl.Err()
	}
	_, err := cl.t.CheckSure()
	return err
}

// Beat reports that the handler of a claim with [Progress] has made a step. It does no I/O, and is cheap
// enough for every step of a loop. For a claim without Progress it changes nothing.
//
// After the end of the claim's context it is too late: Beat returns the cause of that end, a *LostError or
// ErrReleased, and the claim ends.
func (cl *Claim) Beat() error {
	if cl.t == nil || cl.released.Load() {
		return cl.Err()
	}
	return cl.t.Beat()
}

// Owns reads from etcd whether the claim is still the owner of its key. If it
// is not, the claim is lost. After an error the owner is not known. ctx and
// the claim's deadline bound the read. The error matches ErrUnknown while that of
// [Claim.Check] does.
func (cl *Claim) Owns(ctx context.Context) (bool, error) {
	if err := cl.Err(); err != nil {
		return false, nil
	}
	if cl.t == nil {
		return true, nil
	}
	ctx, cancel := cl.t.Session().Within(ctx)
	defer cancel()
	resp, err := cl.c.read(ctx, txn.OpsOf(protocol.Owner{Held: &cl.t.Held}.Reads())...)
	if err != nil {
		return false, callError("look up the owner of", cl.key, err)
	}
	if !cl.t.Owned(resp) {
		return false, nil
	}
	if err = cl.Check(); errors.Is(err, ErrUnknown) {
		return false, err
	}
	return err == nil, nil
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
	if len(b) > MaxNoteBytes {
		return callError("note", cl.key, noteTooLarge(b))
	}
	if err := cl.checkSure(); err != nil {
		return cl.afterRelease("note", err)
	}
	if cl.t == nil {
		return nil
	}
	return cl.afterRelease("note", cl.t.SetNote(ctx, b))
}

func noteTooLarge(note []byte) error {
	return fmt.Errorf("%w: a note of %d bytes, the limit is %d: store it elsewhere and note where", ErrTooLarge, len(note), MaxNoteBytes)
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
	ctx, cancel := cl.t.Session().Within(ctx)
	defer cancel()
	err := cl.t.Session().RenewVerified(ctx)
	if ended := cl.Err(); ended != nil {
		return cl.afterRelease("renew", ended)
	}
	if err != nil {
		return callError("renew", cl.key, err)
	}
	return nil
}

// afterRelease names the call and the key if the error is ErrReleased. A LostError names the
// key itself.
func (cl *Claim) afterRelease(call string, err error) error {
	if err == ErrReleased { //nolint:errorlint // a wrapped one has its call
		return callError(call, cl.key, err)
	}
	return err
}
