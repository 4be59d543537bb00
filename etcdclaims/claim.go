package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/fencing"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Claim is ownership of one key for one term. It ends when it is released or
// lost, and never comes back. The claims of a passthrough client never end by
// themselves and have fence 0.
type Claim struct {
	t        *term // nil: passthrough
	key      string
	released atomic.Bool // this handle, of perhaps several
}

// Key returns the claimed key.
func (cl *Claim) Key() string { return cl.key }

// Fence returns the number that rises over every change of ownership of the
// key, 0 for a passthrough claim.
func (cl *Claim) Fence() int64 {
	if cl.t == nil {
		return 0
	}
	return cl.t.fence
}

// Revision returns the revision of the transaction that made the claim, which is
// the fence without the epoch, and the ModRevision of all that was written with
// Then. It is 0 for a passthrough claim.
func (cl *Claim) Revision() int64 { return revision(cl.Fence()) }

// Token returns key and fence, to send along with requests.
func (cl *Claim) Token() fencing.Token { return tokenOf(cl.key, cl.Fence()) }

// Owner returns the label of the owner, for people.
func (cl *Claim) Owner() string {
	if cl.t == nil {
		return ""
	}
	return cl.t.s.c.cfg.Owner
}

// ID returns the identity of this term, new for each: what Info.Claim shows. It
// is empty for a passthrough claim.
func (cl *Claim) ID() string {
	if cl.t == nil {
		return ""
	}
	return cl.t.id
}

// Context returns a context that carries the token and ends when work must
// stop: a drain before the claim's own deadline, or at once when the claim is
// lost or released. Its cause is a *LostError or ErrReleased. A context that
// ended because renewals were late stays ended, even if one arrives yet: finish
// and release.
//
// It is a hint. A process that was stopped sees it end late: call Check before
// each effect, or fencing.Check where only the context is at hand, and fence the
// effect.
func (cl *Claim) Context() context.Context {
	if cl.t == nil {
		return fencing.NewContext(context.Background(), cl.Token())
	}
	return cl.t.context()
}

// Bind returns ctx with the token, ending with the claim's context too;
// fencing.Check of it is the claim's Check. Call the returned function when it is
// not needed any more.
func (cl *Claim) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = fencing.NewContext(ctx, cl.Token())
	if cl.t == nil {
		ctx, cancel := context.WithCancelCause(ctx)
		return ctx, func() { cancel(nil) }
	}
	ctx, cancel := context.WithCancelCause(fencing.WithCheck(ctx, cl.Check))
	own := cl.t.context()
	stop := context.AfterFunc(own, func() { cancel(context.Cause(own)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Done is closed when the claim is lost or released.
func (cl *Claim) Done() <-chan struct{} {
	if cl.t == nil {
		return nil
	}
	return cl.t.done
}

// Err returns nil while the claim is held as far as the client knows, and then
// a *LostError or ErrReleased.
func (cl *Claim) Err() error {
	if cl.t != nil {
		if err := cl.t.ended(); err != nil {
			return err
		}
	}
	if cl.released.Load() {
		return ErrReleased
	}
	return nil
}

// Deadline returns when the claim ends unless it is renewed, for people and
// timeouts; it is past once it is over. It is zero for a passthrough claim.
func (cl *Claim) Deadline() time.Time {
	if cl.t == nil {
		return time.Time{}
	}
	return time.Now().Add(cl.Remaining())
}

// Remaining returns how long the claim lasts unless it is renewed, 0 once it is
// over. For a passthrough claim it is the longest duration there is.
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

// Check returns nil if the claim is held by the clock's account now. It sends
// nothing: call it right before each effect. If the wall clock alone says that
// the claim is over, as after a step, the error matches ErrUnknown until a
// renewal has shown what is true.
func (cl *Claim) Check() error {
	wallSaysOver, err := cl.checkSure()
	if wallSaysOver {
		return fmt.Errorf("etcdclaims: claim on %q (fence %d): the wall clock jumped past its deadline, it is being verified: %w", cl.key, cl.Fence(), ErrUnknown)
	}
	return err
}

// checkSure is Check by the clocks that cannot be stepped. It is enough for what
// carries its guard to etcd, which judges by no clock of this machine.
func (cl *Claim) checkSure() (wallSaysOver bool, err error) {
	if err := cl.Err(); err != nil || cl.t == nil {
		return false, err
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

// Owns asks etcd whether the claim is still the owner. If it is not, the claim
// is lost. An error means that it is not known.
func (cl *Claim) Owns(ctx context.Context) (bool, error) {
	if err := cl.Err(); err != nil {
		return false, nil
	}
	if cl.t == nil {
		return true, nil
	}
	ctx, cancel := cl.t.s.within(ctx)
	defer cancel()
	resp, err := cl.t.s.c.read(ctx, cl.t.sight()...)
	if err != nil {
		return false, fmt.Errorf("etcdclaims: asking for the owner of %q: %w", cl.key, err)
	}
	return cl.t.owned(resp) && cl.Check() == nil, nil
}

// within bounds a request on a claim's behalf by the claim's deadline.
func (s *session) within(ctx context.Context) (context.Context, context.CancelFunc) {
	left, _ := s.left()
	return context.WithTimeoutCause(ctx, max(left, 0), fmt.Errorf("%w: the claim's deadline passed", context.DeadlineExceeded))
}

// Held returns the conditions under which the claim is the owner, for a
// transaction of the caller's own. [Claim.Txn] tells a lost claim from a
// failed condition; with Held the caller has to.
func (cl *Claim) Held() []clientv3.Cmp {
	if cl.t == nil {
		return []clientv3.Cmp{clientv3.Compare(clientv3.Version("\x00"), ">", -1)} // always true
	}
	return cl.t.guard()
}

// Note stores what people and successors may want to know of the work: up to
// MaxNoteBytes, gone with the claim. The claim's own key is not touched, so the
// fence stays.
func (cl *Claim) Note(ctx context.Context, b []byte) error {
	if err := checkNote(b); err != nil {
		return err
	}
	if _, err := cl.checkSure(); err != nil {
		return err
	}
	if cl.t == nil {
		return nil
	}
	return cl.t.setNote(ctx, b)
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
	key := st.layout.note(t.key)
	value := newNote(seq, b)
	for try := 0; ; try++ {
		resp, err := st.do(ctx, request{
			key:  t.key,
			cmps: append(t.guard(), clientv3.Compare(clientv3.ModRevision(key), "=", rev)),
			then: []clientv3.Op{clientv3.OpPut(key, value, clientv3.WithLease(t.s.id))},
			els:  append(t.sight(), clientv3.OpGet(key)),
		})
		switch {
		case err == nil && resp.Succeeded:
			rev = resp.Header.Revision
		case err == nil:
			if !t.owned(resp) {
				return t.lost()
			}
			rev = 0
			if kvs := resp.Responses[2].GetResponseRange().Kvs; len(kvs) > 0 {
				rev = kvs[0].ModRevision
				if string(kvs[0].Value) == value {
					break // it was done by a request whose reply was lost
				}
			}
			t.s.mu.Lock()
			t.noteRev = max(t.noteRev, rev)
			overtaken := t.noteSeq > seq
			t.s.mu.Unlock()
			if overtaken {
				return nil // a younger note is there, or on its way
			}
			continue
		case t.s.gone(ctx, err, false):
			return t.lost()
		case errors.Is(err, ErrUnknown) || isTransient(err):
			if backOff(ctx, try, t.done) {
				continue
			}
			fallthrough
		default:
			return fmt.Errorf("etcdclaims: noting on %q: %w", t.key, err)
		}
		t.s.mu.Lock()
		t.noteRev = max(t.noteRev, rev)
		t.s.mu.Unlock()
		return nil
	}
}

// lost returns why the term is over.
func (t *term) lost() error {
	if err := t.ended(); err != nil {
		return err
	}
	return &LostError{Token: t.token(), Reason: ReasonSuperseded}
}

// Renew extends the claim's lease, and verifies every claim on it: the
// heartbeat of a Manual claim, and what the client does by itself for all
// others. When it returns nil the deadline has moved. It tries until ctx ends or
// the claim is lost.
func (cl *Claim) Renew(ctx context.Context) error {
	if err := cl.Err(); err != nil {
		return err
	}
	if cl.t == nil {
		return nil
	}
	ctx, cancel := cl.t.s.within(ctx)
	defer cancel()
	err := cl.t.s.renewVerified(ctx)
	if ended := cl.Err(); ended != nil {
		return ended
	}
	if err != nil {
		return fmt.Errorf("etcdclaims: renewing %q: %w", cl.key, err)
	}
	return nil
}
