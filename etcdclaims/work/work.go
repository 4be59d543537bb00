package work

import (
	"context"
	"fmt"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/record"
	"github.com/etcdclaims/claims/internal/retention"
)

// Work is a claim with a durable record. End it with Complete, Fail or
// Release, or let Run do so.
//
// If the claim is lost, the process dies or the client is closed before the
// work has ended, the work is an orphan. The next caller begins it again.
//
// Release, ReleaseWith and Run of its claim are those of Work.
type Work struct {
	*etcdclaims.Claim

	// These, and Claim, are set by newWork:
	c        *Runner
	term     beside.Term      // nil: passthrough
	lease    *retention.Lease // that the record is on
	record   record.Record    // of this attempt, as it was begun
	previous record.Record    // zero for the first attempt

	over  atomic.Bool            // it has ended, or may have
	ended atomic.Pointer[Record] // how, once that is known
}

// Attempt returns the number of this attempt, 1 for the first. It rises with
// each attempt for as long as the work has a record. An attempt that was released does
// not count.
func (w *Work) Attempt() int { return w.record.Attempt }

// Previous returns the previous attempt's record. ok is false if there is
// none. State is:
//
//   - StateOrphaned if its owner died.
//   - StateFailed if the attempt failed.
//   - StateFree if an attempt after the first was given back, or an operator called
//     Runner.Retry. A first attempt that is given back leaves no record.
//   - StateDone or StateDead if the work was begun with Again.
//   - StateClaimed if this client superseded the attempt.
func (w *Work) Previous() (r Record, ok bool) { return Record(w.previous), w.previous.State != "" }

// Complete records the work as done and releases the claim, in one transaction
// together with ops. The ops are therefore carried out if and only if the work
// is done, and once. They must not change keys under the client's prefix,
// except in sched/ and queue/.
//
// ctx bounds the call, and so does the claim's own deadline. The error
// matches:
//
//   - etcdclaims.ErrLost if the claim was lost. Nothing was carried out.
//   - etcdclaims.ErrReleased if the work has already ended. If this attempt has recorded how, the error
//     also matches ErrDone, ErrDead or ErrBackoff; it wraps a *Error with the record.
//   - etcdclaims.ErrUnknown if the transaction may have been carried out. While the claim lasts it
//     is retried in the background. The key is released whether the work was completed
//     or not.
//
// After any other error nothing was carried out and the claim is still held.
// Call Complete again, or Fail.
func (w *Work) Complete(ctx context.Context, ops ...clientv3.Op) error {
	_, err := w.end(ctx, Record{State: StateDone}, ops)
	return err
}

// CompleteWith does what Complete does, and stores a result in the record for
// as long as the work is known to be done. A caller that later tries to begin
// the work gets it as Record.Result. A result longer than 64 KiB
// returns etcdclaims.ErrTooLarge: store what is larger elsewhere, because a result is read
// with each record.
func (w *Work) CompleteWith(ctx context.Context, result []byte, ops ...clientv3.Op) error {
	if len(result) > record.MaxResultBytes {
		err := fmt.Errorf("%w: the result has %d bytes, the limit is %d: store it elsewhere, in the same transaction",
			etcdclaims.ErrTooLarge, len(result), record.MaxResultBytes)
		return w.fail("complete work", err)
	}
	_, err := w.end(ctx, Record{State: StateDone, Result: string(result)}, ops)
	return err
}

// Fail records the attempt as failed and releases the claim, in one
// transaction together with ops. It returns the new record. In StateFailed the
// next attempt may begin at NotBefore. In StateDead there is no next attempt,
// unless a caller uses Again or Runner.Retry.
//
// NotBefore is set by Config.Backoff, or by etcdclaims.RetryAfter around cause. The work
// is dead if cause is etcdclaims.Permanent, or after Config.MaxAttempts. A client that
// begins the work compares NotBefore with its own wall clock.
//
// The record stores the text of cause, cut to 4 KiB between runes. Run
// also stores the stack of a panic, cut to 8 KiB.
//
// The errors are those of Complete. With etcdclaims.ErrUnknown, the returned record may
// have been stored. With any other error it was not.
func (w *Work) Fail(ctx context.Context, cause error, ops ...clientv3.Op) (Record, error) {
	return w.end(ctx, w.failed(cause), ops)
}

// Release gives the work back without an outcome, so that this attempt does
// not count. The errors are those of Complete, except that Release returns nil
// if the work has already ended. As with etcdclaims.Claim.Release, ctx may have ended.
func (w *Work) Release(ctx context.Context) error {
	if w.term != nil {
		var cancel context.CancelFunc
		ctx, cancel = w.c.host.Releasing(ctx)
		defer cancel()
	}
	_, err := w.end(ctx, Record{State: StateFree}, nil)
	return err
}

// ReleaseWith does what Release does, together with ops, in one transaction. The errors are those of
// Complete.
func (w *Work) ReleaseWith(ctx context.Context, ops ...clientv3.Op) error {
	_, err := w.end(ctx, Record{State: StateFree}, ops)
	return err
}

// fail names the call and the key of an error.
func (w *Work) fail(call string, err error) error {
	if w.c.host == nil {
		return fmt.Errorf("%s %q: %w", call, w.Key(), err)
	}
	return w.c.host.Fail(call, w.Key(), err)
}
