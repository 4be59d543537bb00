package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// plan is what an acquiring call knows of the record of its work: at first
// that there is none, which etcd corrects if it is wrong.
type plan struct {
	key   string
	opts  options
	prev  *Record          // the record before, or nil
	raw   string           // as it is stored
	lease clientv3.LeaseID // that it is on
	rev   int64            // its ModRevision
	err   error            // why it could not be read

	anew       bool   // done or dead work is begun again: its attempts count from here
	shelf      *shelf // that the record of the attempt is put on
	superseded bool   // the attempt took the work over from this client's own

	c       *Runner
	kv      *mvccpb.KeyValue // the record as it was read last
	put     beside.Attempt   // the last attempt
	call    beside.Call
	seeker  *seeker     // of a call that waits, or nil
	undoing *recordUndo // of the call's last attempt that is undone, or nil
}

// Key names the record.
func (w *plan) Key() string { return w.c.recordKey(w.key) }

// Rev is the ModRevision of the record that the plan is made for.
func (w *plan) Rev() int64 { return w.rev }

// Begin learns of the call.
func (w *plan) Begin(call beside.Call) { w.call = call }

// Known returns the record that was read last.
func (w *plan) Known() *mvccpb.KeyValue { return w.kv }

// Granted reports whether the work is taken over from an owner that has died.
func (w *plan) Granted(superseded bool) (tookOver bool) {
	w.superseded = superseded
	return w.orphan()
}

// LeaseGone reports whether the lease of the record was revoked.
func (w *plan) LeaseGone(put *beside.Put, err error) bool {
	return w.c.records.gone(err, shelfOf(put))
}

// Changed takes over a record that has changed.
func (w *plan) Changed(kv *mvccpb.KeyValue) bool {
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

// orphan reports whether the work's last owner is gone without a word. It is
// only asked where the key was seen to be free.
func (w *plan) orphan() bool {
	return w.prev != nil && w.prev.State == StateClaimed && !w.superseded
}

func (w *plan) note() string {
	if w.call.Note == nil && w.prev != nil {
		return w.prev.Note
	}
	return string(w.call.Note)
}

// Put returns the record of an attempt.
func (w *plan) Put(a beside.Attempt) *beside.Put {
	w.put = a
	r := w.record(a)
	stored := r.stored()
	stored.Epoch = a.Epoch
	return &beside.Put{Key: w.Key(), Value: stored.encode(), Lease: w.shelf.id, Number: r.Attempt, On: w.shelf}
}

// record is the record of an attempt.
func (w *plan) record(a beside.Attempt) Record {
	r := begun(w.prev, w.anew)
	r.Key, r.Claim, r.Owner, r.Instance, r.Begun = w.key, a.Claim, w.c.claims.Owner(), w.c.claims.Instance(), a.Since.UTC()
	r.Note, r.AtMostOnce = w.note(), w.opts.atMostOnce
	return r
}

// restored returns the record as it was before the attempt, or "" if there was none. To
// that of an orphan it adds the fence: it was the revision of the record, which is
// another when it is put back.
func (w *plan) restored() string {
	var r record
	if w.prev != nil && w.prev.State == StateClaimed && json.Unmarshal([]byte(w.raw), &r) == nil && r.Fence == 0 {
		r.Fence = w.prev.Fence
		return r.encode()
	}
	return w.raw
}

// Prepare admits the work and finds a lease for the record of the attempt.
func (w *plan) Prepare(ctx context.Context) error {
	c := w.c
	told := c.outcomes.tell(w)
	if err := c.admitWork(ctx, w.key, w); err != nil {
		if !told && isOutcome(err) {
			c.readOutcome(w.key) // for others that wait: no watch has brought it
		}
		return verdictOf(err)
	}
	if c.host.Open().Err() != nil {
		return etcdclaims.ErrClosed
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
func (c *Runner) admitWork(ctx context.Context, key string, w *plan) error {
	if w.err != nil {
		return fmt.Errorf("%w: Forget removes it", w.err)
	}
	if w.prev == nil {
		return nil
	}
	if w.prev.isOver(c.host.Clock().Time(), w.opts.again) {
		return &Error{Record: *w.prev}
	}
	w.anew = w.prev.State == StateDone || w.prev.State == StateDead
	if w.prev.State == StateClaimed {
		return c.admitOrphan(ctx, key, w)
	}
	return nil
}

// admitOrphan is admitWork for work that is an orphan, or this client's own to be
// superseded.
func (c *Runner) admitOrphan(ctx context.Context, key string, w *plan) error {
	if u := c.undos.of(w.prev.Claim); u != nil {
		// It is of an attempt of this client that no caller has had. The undo puts the record
		// before back.
		if err := u.wait(ctx); err != nil {
			return err
		}
		w.rev = -1 // of no record: it is read anew
		return nil
	}
	if own, held := c.host.Own(key); w.call.Supersede && own == w.prev.Claim {
		if w.prev.AtMostOnce {
			return held
		}
		return nil
	}
	why := w.prev.buries(c.cfg.MaxAttempts)
	if why == "" {
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
func (c *Runner) bury(ctx context.Context, key string, w *plan, why string) error {
	dead := w.prev.buried(why, c.host.Clock().Time())
	shelf, err := c.records.get(ctx, 0)
	if err != nil {
		return err
	}
	put := false
	defer func() { shelf.leave(put) }()
	own, work := c.claims.OwnKey(key), c.recordKey(key)
	r := txn.Request{
		In: txn.Of(
			[]clientv3.Cmp{
				clientv3.Compare(clientv3.CreateRevision(own), "=", 0),
				clientv3.Compare(clientv3.ModRevision(work), "=", w.rev),
			},
			[]clientv3.Op{dead.stored().put(work, shelf)},
			[]clientv3.Op{clientv3.OpGet(own), clientv3.OpGet(work)},
		),
	}
	for try := 0; ; try++ {
		resp, err := c.host.Store().Do(ctx, r)
		switch {
		case err == nil && resp.Succeeded:
			put = true
			c.logDead(dead, errors.New(why))
			return &Error{Record: dead}
		case err == nil:
			if own := firstKV(resp, 0); own != nil {
				switch err := c.host.HeldBy(ctx, key, own, true); {
				case errors.Is(err, etcdclaims.ErrHeld):
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
		case errors.Is(err, etcdclaims.ErrUnknown):
			shelf.doubt()
		case !txn.IsTransient(err):
			return fmt.Errorf("burying orphaned work: %w", err)
		}
		if !retry.PauseUnless(ctx, c.host.Open().Done(), try) {
			return txn.WithCause(ctx, err)
		}
	}
}
