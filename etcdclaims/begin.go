package etcdclaims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// workPlan is what an acquiring call knows of the record of its work: at first
// that there is none, which etcd corrects if it is wrong.
type workPlan struct {
	key   string
	opts  *acquireOptions
	prev  *Record          // the record before, or nil
	raw   string           // as it is stored
	lease clientv3.LeaseID // that it is on
	rev   int64            // its ModRevision
	err   error            // why it could not be read

	anew       bool   // done or dead work is begun again: its attempts count from here
	shelf      *shelf // that the record of the attempt is put on
	superseded bool   // the attempt took the work over from this client's own

	c       *Client
	kv      *mvccpb.KeyValue // the record as it was read last
	call    beside.Call
	seeker  *seeker     // of a call that waits, or nil
	undoing *recordUndo // of the call's last attempt that is undone, or nil
}

// Key names the record.
func (w *workPlan) Key() string { return w.c.store.layout.Work(w.key) }

// Rev is the ModRevision of the record that the plan is made for.
func (w *workPlan) Rev() int64 { return w.rev }

// Begin learns of the call.
func (w *workPlan) Begin(call beside.Call) { w.call = call }

// Known returns the record that was read last.
func (w *workPlan) Known() *mvccpb.KeyValue { return w.kv }

// Granted reports whether the work is taken over from an owner that has died.
func (w *workPlan) Granted(superseded bool) (tookOver bool) {
	w.superseded = superseded
	return w.orphan()
}

// LeaseGone reports whether the lease of the record was revoked.
func (w *workPlan) LeaseGone(put *beside.Put, err error) bool {
	return w.c.records.gone(err, put.On.(*shelf))
}

// Changed takes over a record that has changed.
func (w *workPlan) Changed(kv *mvccpb.KeyValue) bool {
	w.kv = kv
	rev := int64(0)
	if kv != nil {
		rev = kv.ModRevision
	}
	if rev == w.rev {
		return false
	}
	w.prev, w.raw, w.lease, w.rev, w.err, w.anew = nil, "", clientv3.NoLease, rev, nil, false
	if kv != nil {
		r, err := decodeRecord(w.key, kv)
		w.prev, w.raw, w.lease, w.err = &r, string(kv.Value), clientv3.LeaseID(kv.Lease), err
	}
	return true
}

func (w *workPlan) attempt() int {
	if w.prev == nil {
		return 1
	}
	return w.prev.Attempt + 1
}

// orphan reports whether the work's last owner is gone without a word. It is
// only asked where the key was seen to be free.
func (w *workPlan) orphan() bool {
	return w.prev != nil && w.prev.State == StateClaimed && !w.superseded
}

// earlier is how many attempts Config.MaxAttempts does not count.
func (w *workPlan) earlier() int {
	switch {
	case w.prev == nil:
		return 0
	case w.anew:
		return w.prev.Attempt
	}
	return w.prev.Earlier
}

func (w *workPlan) note() string {
	if w.call.Note == nil && w.prev != nil {
		return w.prev.Note
	}
	return string(w.call.Note)
}

// Put returns the record of an attempt.
func (w *workPlan) Put(a beside.Attempt) *beside.Put {
	return &beside.Put{Key: w.Key(), Value: w.claimed(a).encode(), Lease: w.shelf.id, Number: w.attempt(), On: w.shelf}
}

// claimed is the record of the attempt.
func (w *workPlan) claimed(a beside.Attempt) record {
	r := record{
		State: StateClaimed, Attempt: w.attempt(), Earlier: w.earlier(), Epoch: a.Epoch, Claim: a.Claim,
		Owner: w.c.cfg.Owner, Instance: w.c.store.layout.Instance, Begun: a.Since.UTC(), AtMostOnce: w.opts.atMostOnce,
	}
	if w.prev != nil {
		r.Error, r.Stack = w.prev.Error, w.prev.Stack
	}
	r.setNote(w.note())
	return r
}

// restored returns the record as it was before the attempt, or "" if there was none. To
// that of an orphan it adds the fence: it was the revision of the record, which is
// another when it is put back.
func (w *workPlan) restored() string {
	var r record
	if w.prev != nil && w.prev.State == StateClaimed && json.Unmarshal([]byte(w.raw), &r) == nil && r.Fence == 0 {
		r.Fence = w.prev.Fence
		return r.encode()
	}
	return w.raw
}

// Prepare admits the work and finds a lease for the record of the attempt.
func (w *workPlan) Prepare(ctx context.Context) error {
	c := w.c
	told := c.outcomes.tell(w)
	if err := c.admitWork(ctx, w.key, w); err != nil {
		if !told && isOutcome(err) {
			c.readOutcome(w.key) // for others that wait: no watch has brought it
		}
		return verdictOf(err)
	}
	if c.open.Err() != nil {
		return ErrClosed
	}
	// The record must outlast the claim, or no caller would find the orphan.
	s, err := c.records.get(ctx, w.call.TTL)
	if err != nil {
		return err
	}
	w.shelf.leave(false)
	w.shelf = s
	return nil
}

// admitWork reports whether work whose key is free may be begun, as far as its record
// is known. It marks work that may not run again as dead.
func (c *Client) admitWork(ctx context.Context, key string, w *workPlan) error {
	if w.err != nil {
		return fmt.Errorf("%w: Forget removes it", w.err)
	}
	if w.prev == nil {
		return nil
	}
	if err := w.refusal(w.prev, c.clock.Time()); err != nil {
		return err
	}
	w.anew = w.prev.State == StateDone || w.prev.State == StateDead
	if w.prev.State == StateClaimed {
		return c.admitOrphan(ctx, key, w)
	}
	return nil
}

// refusal returns why work whose last attempt has ended is not begun now, or nil.
func (w *workPlan) refusal(r *Record, now time.Time) error {
	ended := r.State == StateDone || r.State == StateDead || r.State == StateFailed && r.NotBefore.After(now)
	if !ended || w.opts.beginsAgain(r.State) {
		return nil
	}
	return &WorkError{Record: *r}
}

// admitOrphan is admitWork for work that is an orphan, or this client's own to be
// superseded.
func (c *Client) admitOrphan(ctx context.Context, key string, w *workPlan) error {
	if u := c.undos.of(w.prev.Claim); u != nil {
		// It is of an attempt of this client that no caller has had. The undo puts the record
		// before back.
		if err := u.wait(ctx); err != nil {
			return err
		}
		w.rev = -1 // of no record: it is read anew
		return nil
	}
	if t := c.keys.term(key); w.call.Supersede && t != nil && t.ID == w.prev.Claim {
		if w.prev.AtMostOnce {
			return c.held(t.info())
		}
		return nil
	}
	why := ""
	switch limit := c.cfg.MaxAttempts; {
	case w.prev.AtMostOnce:
		why = "its owner is gone, and it may run at most once"
	case limit > 0 && w.prev.tries() >= limit:
		why = fmt.Sprintf("its owner is gone, in the last of %d attempts", limit)
	default:
		return nil
	}
	if w.opts.beginsAgain(StateDead) {
		w.anew = true
		return nil
	}
	return c.bury(ctx, key, w, why)
}

// bury marks orphaned work as dead. It returns nil if the work may be begun. It also returns nil
// if the key is held again: then no attempt can succeed before it has read the record.
func (c *Client) bury(ctx context.Context, key string, w *workPlan, why string) error {
	dead := *w.prev
	dead.State, dead.Ended, dead.Error, dead.Stack = StateDead, c.clock.Time().UTC(), why, ""
	shelf, err := c.records.get(ctx, 0)
	if err != nil {
		return err
	}
	put := false
	defer func() { shelf.leave(put) }()
	work := c.store.layout.Work(key)
	r := txn.Request{
		In: txn.Of(
			[]clientv3.Cmp{
				clientv3.Compare(clientv3.CreateRevision(c.store.layout.Own(key)), "=", 0),
				clientv3.Compare(clientv3.ModRevision(work), "=", w.rev),
			},
			[]clientv3.Op{dead.stored().put(work, shelf)},
			[]clientv3.Op{clientv3.OpGet(c.store.layout.Own(key)), clientv3.OpGet(work)},
		),
	}
	for try := 0; ; try++ {
		resp, err := c.store.Do(ctx, r)
		switch {
		case err == nil && resp.Succeeded:
			put = true
			c.logDead(dead, errors.New(why))
			return &WorkError{Record: dead}
		case err == nil:
			if own := firstKV(resp, 0); own != nil {
				switch err := c.heldBy(ctx, own, c.info(key, own, nil, 0)); {
				case errors.Is(err, ErrHeld):
					w.rev = -1 // of no record
					return nil
				case err != nil:
					return err
				}
			}
			w.Changed(firstKV(resp, 1))
			return c.admitWork(ctx, key, w)
		case c.records.gone(err, shelf):
			return c.bury(ctx, key, w, why)
		case errors.Is(err, ErrUnknown):
			shelf.doubt()
		case !txn.IsTransient(err):
			return fmt.Errorf("burying orphaned work: %w", err)
		}
		if !retry.PauseUnless(ctx, c.closing, try) {
			return txn.WithCause(ctx, err)
		}
	}
}

// TryBegin claims the key as TryAcquire does, and keeps a durable record of
// the work that the key names: its attempts and its outcome. The key serves as
// a deduplication key: work that is done is not begun again by any client.
//
// Work whose owner died is begun again, with a greater fence and attempt
// number. Previous then returns the record of that owner. If the work was
// begun with AtMostOnce, or has had Config.MaxAttempts, it is dead instead.
//
// With Supersede the call also takes the work over from an earlier claim of
// this client. With Again it begins work that is done, dead or waiting. Note
// is stored in the record.
//
// TryBegin takes one round trip if the key has no record, and two otherwise.
// The first call of a client takes one more, for the lease of its records.
//
// The error matches ErrDone, ErrDead or ErrBackoff if the work cannot be begun
// now; it is a *WorkError with the record. Other errors are those of
// TryAcquire.
func (c *Client) TryBegin(ctx context.Context, key string, opts ...WorkOption) (*Work, error) {
	return c.begin(ctx, key, opts, c.try)
}

// Begin does what TryBegin does, but waits in line while the key is held, as
// Acquire does, also across the loss of the client's session. It does not wait
// for the next attempt of failed work: it returns ErrBackoff.
//
// Begin does not wait for its turn to learn how the work ends. When an outcome is
// recorded with which the work cannot be begun, all callers that wait return at
// once. That takes one watch of the record, and one read, for each client. If the
// event is lost, it takes up to a third of the TTL longer.
//
// Callers of one client that wait for the same work have one place in line between
// them: they take it one after the other, so callers of other clients can come
// between them. Callers with Supersede have places of their own.
//
// If the outcome of an attempt stays unknown because etcd does not answer, Begin
// waits until that attempt is undone, and makes another. The first does not count.
// With Then it returns ErrUnknown, since operations are not undone.
func (c *Client) Begin(ctx context.Context, key string, opts ...WorkOption) (*Work, error) {
	return c.begin(ctx, key, opts, c.wait)
}

func (c *Client) begin(ctx context.Context, key string, opts []WorkOption,
	acquire func(context.Context, string, *acquireOptions) (*term, error),
) (*Work, error) {
	o, err := acquiring(c, key, opts)
	if err != nil {
		return nil, err
	}
	if c.Passthrough() {
		return newWork(nil, &workPlan{key: key, opts: o, call: beside.Call{Note: o.note}}), nil
	}
	w := &workPlan{key: key, opts: o, c: c}
	o.beside = w
	w.Begin(o.besideCall())
	defer func() {
		c.leave(w)
		w.shelf.leave(false)
	}()
	t, err := acquire(ctx, key, o)
	if err != nil {
		if v, ok := err.(*beside.Verdict); ok { //nolint:errorlint // a wrapped one keeps what is around it
			err = v.Err
		}
		return nil, err
	}
	return newWork(t, w), nil
}

// newWork returns the handle of work that was begun. Its term is nil without etcd.
func newWork(t *term, w *workPlan) *Work {
	out := &Work{Claim: &Claim{t: t, key: w.key}, attempt: 1, earlier: w.earlier(), note: w.note(), atMostOnce: w.opts.atMostOnce}
	out.Claim.work = out
	if t == nil {
		return out
	}
	out.attempt, out.begun = t.attempt(), t.since.UTC()
	if w.prev != nil {
		out.previous = *w.prev
		if w.orphan() {
			out.previous.State = StateOrphaned
		}
	}
	return out
}
