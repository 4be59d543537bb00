package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/retry"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Work is a claim with a durable record. End it with Complete, Fail or
// Release, or let Run do so.
//
// If the claim is lost, the process dies or the client is closed before the
// work has ended, the work is an orphan. The next caller begins it again.
type Work struct {
	*Claim
	attempt    int
	earlier    int
	begun      time.Time
	note       string
	atMostOnce bool
	previous   Record // zero if there is none
	ended      atomic.Pointer[Record]
}

// Attempt returns the number of this attempt, 1 for the first. It rises with
// each attempt for as long as the work has a record. An attempt that was released does
// not count.
func (w *Work) Attempt() int { return w.attempt }

// Previous returns the previous attempt's record. ok is false if there is
// none. State is:
//
//   - StateOrphaned if its owner died.
//   - StateFailed if the attempt failed.
//   - StateFree if an attempt after the first was given back, or an operator called
//     Client.Retry. A first attempt that is given back leaves no record.
//   - StateDone or StateDead if the work was begun with Again.
//   - StateClaimed if this client superseded the attempt.
func (w *Work) Previous() (r Record, ok bool) { return w.previous, w.previous.State != "" }

// Complete records the work as done and releases the claim, in one transaction
// together with ops. The ops are therefore carried out if and only if the work
// is done, and once. They must not change keys under the client's prefix,
// except in sched/ and queue/.
//
// ctx bounds the call, and so does the claim's own deadline. The error
// matches:
//
//   - ErrLost if the claim was lost. Nothing was carried out.
//   - ErrReleased if the work has already ended. If this attempt has recorded how, the error
//     also matches ErrDone, ErrDead or ErrBackoff; it wraps a *WorkError with the record.
//   - ErrUnknown if the transaction may have been carried out. While the claim lasts it
//     is retried in the background. The key is released whether the work was completed
//     or not.
//
// After any other error nothing was carried out and the claim is still held.
// Call Complete again, or Fail.
func (w *Work) Complete(ctx context.Context, ops ...clientv3.Op) error {
	_, err := w.end(ctx, Record{Key: w.key, State: StateDone}, ops)
	return err
}

// CompleteWith does what Complete does, and stores a result in the record for
// as long as the work is known to be done. A caller that later tries to begin
// the work gets it as Record.Result. A result longer than MaxResultBytes
// returns ErrTooLarge.
func (w *Work) CompleteWith(ctx context.Context, result []byte, ops ...clientv3.Op) error {
	if len(result) > MaxResultBytes {
		return callError("complete work", w.key, fmt.Errorf("%w: the result has %d bytes, the limit is %d: store it elsewhere, in the same transaction", ErrTooLarge, len(result), MaxResultBytes))
	}
	_, err := w.end(ctx, Record{Key: w.key, State: StateDone, Result: string(result)}, ops)
	return err
}

// Fail records the attempt as failed and releases the claim, in one
// transaction together with ops. It returns the new record. In StateFailed the
// next attempt may begin at NotBefore. In StateDead there is no next attempt,
// unless a caller uses Again or Client.Retry.
//
// NotBefore is set by Config.Backoff, or by RetryAfter around cause. The work
// is dead if cause is Permanent, or after Config.MaxAttempts. A client that
// begins the work compares NotBefore with its own wall clock.
//
// The record stores the text of cause, cut to MaxErrorBytes. For a *PanicError
// it also stores the stack.
//
// The errors are those of Complete. With ErrUnknown, the returned record may
// have been stored. With any other error it was not.
func (w *Work) Fail(ctx context.Context, cause error, ops ...clientv3.Op) (Record, error) {
	return w.end(ctx, w.failure(cause), ops)
}

// failure is the outcome of an attempt that has failed.
func (w *Work) failure(cause error) Record {
	if cause == nil {
		cause = errors.New("failed without a cause")
	}
	r := Record{Key: w.key, State: StateFailed, Attempt: w.attempt, Error: limitText(errtext.Text(cause), MaxErrorBytes)}
	var panicked *PanicError
	if errors.As(cause, &panicked) {
		r.Stack = limitText(string(panicked.Stack), MaxStackBytes)
	}
	backoff, limit, now := Backoff(func(int) time.Duration { return 0 }), 0, clock.Clock{}.Time()
	if w.t != nil {
		c := w.t.s.c
		backoff, limit, now = c.cfg.Backoff, c.cfg.MaxAttempts, c.clock.Time()
	}
	r.Ended = now.UTC() // NotBefore counts from it, and is never before it
	tries := w.attempt - w.earlier
	var permanent permanentError
	var after retryAfterError
	switch {
	case errors.As(cause, &permanent), limit > 0 && tries >= limit:
		r.State = StateDead
	case errors.As(cause, &after):
		r.NotBefore = now.Add(after.after).UTC()
	default:
		r.NotBefore = now.Add(backoff(tries)).UTC()
	}
	return r
}

// Release gives the work back without an outcome, so that this attempt does
// not count. The errors are those of Complete, except that Release returns nil
// if the work has already ended. As with [Claim.Release], ctx may have ended.
func (w *Work) Release(ctx context.Context) error {
	if w.t != nil {
		var cancel context.CancelFunc
		ctx, cancel = w.t.s.c.releasing(ctx)
		defer cancel()
	}
	_, err := w.end(ctx, Record{Key: w.key, State: StateFree}, nil)
	return err
}

// end records the attempt's outcome, which it returns as it is stored.
func (w *Work) end(ctx context.Context, r Record, ops []clientv3.Op) (Record, error) {
	r, e, err := w.tryEnd(ctx, r, ops)
	e.over(err)
	return r, w.afterRelease("end work", err)
}

// endForGood is end for work whose handler has returned. No caller could end it after a
// refusal, so its key is given up in any case.
func (w *Work) endForGood(ctx context.Context, r Record) (Record, error) {
	ended, e, err := w.tryEnd(ctx, r, nil)
	if e == nil && err != nil && w.t != nil { // nothing was sent, for want of a lease for the record
		within, cancel := w.t.s.within(w.t.s.c.io)
		defer cancel()
		for try := 0; e == nil && isPassing(err) && w.Err() == nil && retry.PauseUnless(within, w.Done(), try); try++ {
			ended, e, err = w.tryEnd(within, r, nil)
		}
	}
	if err != nil && !errors.Is(err, ErrLost) && w.Err() == nil {
		w.released.Store(true)
		err = w.t.leaveFor(e, err)
	}
	e.over(err)
	return ended, err
}

// tryEnd is end. It also returns the request, or nil if it failed before that.
// The caller calls over.
func (w *Work) tryEnd(ctx context.Context, r Record, ops []clientv3.Op) (Record, *ending, error) {
	if w.t == nil {
		if len(ops) > 0 {
			return r, nil, fmt.Errorf("%w: operations for %q", ErrPassthrough, w.key)
		}
		w.released.Store(true)
		return r, nil, nil
	}
	t := w.t
	c := t.s.c
	if err := c.checkOps(nil, ops); err != nil {
		return r, nil, callError("end work", w.key, err)
	}
	if _, err := w.checkSure(); err != nil {
		if r.State == StateFree && errors.Is(err, ErrReleased) {
			return r, nil, nil // given up before, as with a claim
		}
		if ended := w.ended.Load(); ended != nil && errors.Is(err, ErrReleased) {
			err = callError("end work", w.key, &endedError{*ended})
		}
		return r, nil, err
	}
	r.Key, r.Attempt, r.Earlier, r.Fence, r.Claim = w.key, w.attempt, w.earlier, t.Fence, t.ID
	r.Owner, r.Instance, r.Begun = c.cfg.Owner, c.store.layout.Instance, w.begun
	if r.Ended.IsZero() {
		r.Ended = c.clock.Time().UTC()
	}
	r.Note, r.AtMostOnce = w.note, w.atMostOnce
	on, lasts := &c.records, time.Duration(0)
	switch r.State {
	case StateDone:
		on = &c.done
	case StateFree:
		r.Attempt--
		r.Error, r.Stack = w.previous.Error, w.previous.Stack
	case StateFailed:
		lasts = r.NotBefore.Sub(r.Ended)
	}
	work := c.store.layout.Work(w.key)
	put, shelf := clientv3.OpDelete(work), (*shelf)(nil)
	if r.State != StateFree || r.Attempt > 0 {
		var err error
		if shelf, err = on.get(ctx, lasts); err != nil {
			return r, nil, callError("end work", w.key, c.outage.explain(c, err))
		}
		put = r.stored().put(work, shelf)
	}
	e := &ending{call: "end work", ops: append([]clientv3.Op{put}, ops...), state: r.State, shelf: shelf}
	if len(ops) == 0 {
		e.concern = []string{} // nothing but the key
	}
	if put.IsDelete() {
		e.deletes = work
	}
	err := t.end(ctx, e)
	if !errors.Is(err, ErrUnknown) && on.gone(err, shelf) {
		e.over(err)
		return w.tryEnd(ctx, r, ops)
	}
	if err == nil || errors.Is(err, ErrUnknown) || errors.Is(err, ErrLost) {
		w.released.Store(true)
	}
	if err == nil {
		w.ended.Store(&r)
		w.count(r)
	}
	return r, e, err
}

// count counts an attempt that was ended.
func (w *Work) count(r Record) {
	if s := shelfOf(w.t.put); s != nil {
		s.puts.Add(-1)
	}
	switch stats := &w.t.s.c.stats; r.State {
	case StateDone:
		stats.completed.Add(1)
	case StateFailed, StateDead:
		stats.failed.Add(1)
		if r.State == StateDead {
			w.t.s.c.logDead(r, errors.New(r.Error))
		}
	}
}

// logDead logs that no caller begins the work again by itself.
func (c *Client) logDead(r Record, cause error) {
	c.log.Warn("work is dead", zap.String("key", r.Key), zap.Int("attempt", r.Attempt), zap.Int64("fence", r.Fence), zap.Error(cause))
}
