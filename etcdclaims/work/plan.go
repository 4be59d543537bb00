package work

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/record"
	"github.com/etcdclaims/claims/internal/retention"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// plan is what an acquiring call does with the record of its work. It is the companion of the claim, and
// belongs to the goroutine of the call.
type plan struct {
	c     *Runner
	opts  options
	call  beside.Call
	known record.Known

	put        beside.Attempt   // the last attempt
	lease      *retention.Lease // that the record of the attempt is put on
	superseded bool             // the attempt took the work over from this client's own
	seeker     *seeker          // of a call that waits, or nil
	undoing    *recordUndo      // of the call's last attempt that is undone, or nil
}

// over is called when the call has returned.
func (w *plan) over() {
	w.seeker.leave()
	w.lease.Leave(false)
}

// Key names the record.
func (w *plan) Key() string { return w.c.recordKey(w.known.Key) }

// Rev is the ModRevision of the record that the plan is made for.
func (w *plan) Rev() int64 { return w.known.Rev }

// Begin learns of the call.
func (w *plan) Begin(call beside.Call) { w.call = call }

// Known returns the record that was read last.
func (w *plan) Known() *mvccpb.KeyValue { return w.known.KV }

// Granted reports whether the work is taken over from an owner that has died.
func (w *plan) Granted(superseded bool) (tookOver bool) {
	w.superseded = superseded
	return w.orphan()
}

// LeaseGone reports whether the lease of the record was revoked.
func (w *plan) LeaseGone(put *beside.Put, err error) bool {
	return w.c.records.Gone(err, leaseOf(put))
}

// leaseOf returns the lease of a record that was put.
func leaseOf(put *beside.Put) *retention.Lease {
	return put.On.(*retention.Lease) //nolint:forcetypeassert // Put has set it
}

// Changed takes over a record that has changed.
func (w *plan) Changed(kv *mvccpb.KeyValue) bool { return w.known.Changed(kv) }

// orphan reports whether the work's last owner is gone without a word. It is
// only asked where the key was seen to be free.
func (w *plan) orphan() bool {
	return w.known.Prev != nil && w.known.Prev.State == StateClaimed && !w.superseded
}

// isOver reports whether the record is one with which the work is not begun now.
func (w *plan) isOver() bool { return w.known.IsOver(w.c.host.Now(), w.opts.again) }

// Turn waits until the call may join the line. An error means that its waiting is over.
func (w *plan) Turn(ctx context.Context, waits func()) error {
	w.seeker = w.c.outcomes.seek(w.known.Key, w.Key(), w.opts.again, w.call.OutOfTurn)
	select {
	case <-w.seeker.turn:
		return nil
	default:
	}
	waits()
	for {
		select {
		case <-w.seeker.turn:
			return nil
		case <-w.seeker.news:
			if w.learn(); w.isOver() {
				return &beside.Verdict{Err: &Error{Record: Record(*w.known.Prev)}}
			}
		case <-ctx.Done():
			return w.c.host.Waited(ctx, w.known.Key, w.seeker.found(nil))
		}
	}
}

// InLine notes that the call is in line. From now on an outcome wakes it.
func (w *plan) InLine(wake func()) { w.seeker.inLine(wake) }

// Saw notes the claim that the call has found.
func (w *plan) Saw(own *mvccpb.KeyValue) { w.seeker.found(own) }

// learn takes over the record that was read for the call while it waits, if it is news.
func (w *plan) learn() bool {
	kv := w.seeker.take()
	return kv != nil && w.Changed(kv)
}

// Prepare admits the work and finds a lease for the record of the attempt.
func (w *plan) Prepare(ctx context.Context) error {
	c := w.c
	told := w.learn()
	if err := w.admit(ctx); err != nil {
		if known := (*Error)(nil); !errors.As(err, &known) {
			return err
		}
		if !told {
			c.outcomes.read(w.known.Key) // for others that wait: no watch has brought it
		}
		return &beside.Verdict{Err: err}
	}
	if c.host.Open().Err() != nil {
		return etcdclaims.ErrClosed
	}
	// The record must outlast the claim, or no caller would find the orphan.
	lease, err := c.records.Get(ctx, w.call.TTL)
	if err != nil {
		return err
	}
	w.lease.Leave(false)
	w.lease = lease
	return nil
}

// Put returns the record of an attempt.
func (w *plan) Put(a beside.Attempt) *beside.Put {
	w.put = a
	r := w.record()
	stored := r.Value()
	stored.Epoch = a.Epoch
	return &beside.Put{Key: w.Key(), Value: stored.Encode(), Lease: w.lease.ID(), Number: r.Attempt, On: w.lease}
}

// record is the record of the last attempt.
func (w *plan) record() record.Record {
	r, prev := w.known.Next(), w.known.Prev
	r.Claim, r.Begun = w.put.Claim, w.put.Since.UTC()
	r.Owner, r.Instance = w.c.claims.Owner(), w.c.claims.Instance()
	r.Note, r.AtMostOnce = string(w.call.Note), w.opts.atMostOnce
	if w.call.Note == nil && prev != nil {
		r.Note = prev.Note
	}
	return r
}

// Undo returns how the record of an attempt is undone. It may not be the first undo of that
// attempt.
func (w *plan) Undo(put *beside.Put) beside.Undo {
	u := &recordUndo{
		host:  w.c.host,
		claim: record.Read([]byte(put.Value)).Claim,
		key:   put.Key,
		put:   put.Value,
		lease: leaseOf(put),
	}
	if before := w.known.KV; before != nil {
		u.before, u.on = w.known.Restored(), clientv3.LeaseID(before.Lease)
	}
	w.undoing = w.c.undos.add(u)
	return u
}

// Undone waits until the last attempt is undone.
func (w *plan) Undone(ctx context.Context) error {
	if w.undoing == nil {
		return nil
	}
	return w.undoing.wait(ctx)
}
