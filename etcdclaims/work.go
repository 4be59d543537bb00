package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/wire"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Work is a claim with a durable record. End it with Complete, Fail or Release;
// whatever else ends it leaves an orphan, which is begun again by the next.
type Work struct {
	*Claim
	attempt    int
	begun      time.Time
	atMostOnce bool
	previous   Record // zero if there is none
}

// Attempt returns 1 for the first attempt at this work.
func (w *Work) Attempt() int { return w.attempt }

// Previous returns the record before this attempt: of an owner who died
// (StateOrphaned), an attempt that failed, or one that was given back. ok is
// false if this is the first that is known.
func (w *Work) Previous() (r Record, ok bool) { return w.previous, w.previous.State != "" }

// Complete records the work as done and gives the claim up, all in one
// transaction, together with ops: the work's effect on etcd then happens if and
// only if the work is done, once. Operations must not touch keys under the
// client's prefix.
//
// An error that matches ErrLost says that nothing was carried out: another may
// have the work. ErrUnknown says that it may have been; it goes on being tried
// in the background. Any other says that nothing was carried out and that the
// work is still this owner's, to try again or to Fail. When a context without
// much time is given, remember that the claim's own deadline bounds the call
// too.
func (w *Work) Complete(ctx context.Context, ops ...clientv3.Op) error {
	return w.end(ctx, Record{State: StateDone}, ops)
}

// CompleteWith is Complete with a result that is remembered as long as the work
// is known to be done, up to MaxResultBytes: Record.Result, for whoever would
// begin the work again and finds it done. A longer one is ErrTooLarge.
func (w *Work) CompleteWith(ctx context.Context, result []byte, ops ...clientv3.Op) error {
	if len(result) > MaxResultBytes {
		return fmt.Errorf("%w: completing work %q with a result of %d bytes, the limit is %d: store it elsewhere, in the same transaction", ErrTooLarge, w.key, len(result), MaxResultBytes)
	}
	return w.end(ctx, Record{State: StateDone, Result: string(result)}, ops)
}

// Fail records the attempt as failed with the cause, and gives the claim up, in
// one transaction together with ops. The next attempt may begin after
// Config.Backoff, or what RetryAfter says; after Config.MaxAttempts, or a
// Permanent cause, there is none and the work is dead. When the next attempt
// may begin is judged by the wall clock of who begins it.
//
// Errors: as Complete.
func (w *Work) Fail(ctx context.Context, cause error, ops ...clientv3.Op) error {
	if cause == nil {
		cause = errors.New("failed without a cause")
	}
	r := Record{State: StateFailed, Error: limitText(cause.Error())}
	if w.t == nil {
		return w.end(ctx, r, ops)
	}
	c := w.t.s.c
	var permanent permanentError
	var after retryAfterError
	switch limit := c.cfg.MaxAttempts; {
	case errors.As(cause, &permanent), limit > 0 && w.attempt >= limit:
		r.State = StateDead
	case errors.As(cause, &after):
		r.NotBefore = c.clock.Now().Time().Add(after.after).UTC()
	default:
		r.NotBefore = c.clock.Now().Time().Add(c.cfg.Backoff(w.attempt)).UTC()
	}
	return w.end(ctx, r, ops)
}

// Release gives the work back without an outcome: this attempt does not count.
// Unlike a claim's, its error may say that nothing was carried out; see
// Complete.
func (w *Work) Release(ctx context.Context) error {
	return w.end(ctx, Record{State: StateFree}, nil)
}

// limitText keeps an error's text within what a record should carry.
func limitText(s string) string {
	const most = 4096
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

func (w *Work) end(ctx context.Context, r Record, ops []clientv3.Op) error {
	if w.t == nil {
		if len(ops) > 0 {
			return fmt.Errorf("%w: operations for %q", ErrPassthrough, w.key)
		}
		w.released.Store(true)
		return nil
	}
	t := w.t
	c := t.s.c
	if err := c.checkOps(nil, ops); err != nil {
		return fmt.Errorf("ending work %q: %w", w.key, err)
	}
	if _, err := w.checkSure(); err != nil {
		if r.State == StateFree && errors.Is(err, ErrReleased) {
			return nil // given up before, as with a claim
		}
		return err
	}
	r.Key, r.Attempt, r.Fence, r.Claim, r.AtMostOnce = w.key, w.attempt, t.fence, t.id, w.atMostOnce
	r.Owner, r.Instance, r.Begun, r.Ended = c.cfg.Owner, c.store.layout.instance, w.begun, c.clock.Now().Time().UTC()
	work := c.store.layout.work(w.key)
	var put clientv3.Op
	retention := clientv3.NoLease
	switch r.State {
	case StateDone:
		var err error
		retention, err = c.retentionLease(ctx)
		if err != nil {
			return fmt.Errorf("etcdclaims: completing work %q: %w", w.key, err)
		}
		put = clientv3.OpPut(work, r.stored().encode(), clientv3.WithLease(retention))
	case StateFree:
		r.Attempt--
		r.Error = w.previous.Error
		put = clientv3.OpPut(work, r.stored().encode())
		if r.Attempt == 0 {
			put = clientv3.OpDelete(work)
		}
	default:
		put = clientv3.OpPut(work, r.stored().encode())
	}
	err := w.release(ctx, r, append([]clientv3.Op{put}, ops...))
	if r.State == StateDone && errors.Is(err, rpctypes.ErrLeaseNotFound) && c.forgetRetention(retention) {
		// The lease for done work was ended by somebody: another will do.
		return w.end(ctx, r, ops)
	}
	if err == nil || errors.Is(err, ErrUnknown) || errors.Is(err, ErrLost) {
		w.released.Store(true)
	}
	if err == nil {
		switch r.State {
		case StateDone:
			c.stats.completed.Add(1)
		case StateFailed, StateDead:
			c.stats.failed.Add(1)
		}
	}
	return err
}

// release gives the claim up with what is recorded of it.
func (w *Work) release(ctx context.Context, r Record, ops []clientv3.Op) error {
	t := w.t
	work := t.s.c.store.layout.work(w.key)
	return t.release(ctx, &ending{
		ops:     ops,
		foreign: len(ops) > 1,
		look:    clientv3.OpGet(work),
		carriedOut: func(resp *clientv3.GetResponse) bool {
			if len(resp.Kvs) == 0 {
				return r.State == StateFree
			}
			got, err := decodeRecord(w.key, resp.Kvs[0])
			if err != nil {
				return false
			}
			// A successor may have gone on from it already, in which case what
			// it took over tells nothing: only our own record does.
			return got.Claim == t.id && got.State == r.State
		},
	})
}

// retained is the lease that done work is put on for a while. Many share one:
// each lasts a slice longer than the retention, and is used for that slice.
type retained struct {
	free chan struct{} // holds one element while nobody uses the rest
	id   clientv3.LeaseID
	from clock.Reading
	puts int
}

func (r *retained) lock(ctx context.Context) error {
	select {
	case <-r.free:
		return nil
	case <-ctx.Done():
		return wire.ContextError(ctx)
	}
}

func (r *retained) unlock() { r.free <- struct{}{} }

// retentionLease returns a lease that lasts for the retention at least, 0 for
// done work that is kept for ever.
func (c *Client) retentionLease(ctx context.Context) (clientv3.LeaseID, error) {
	if c.cfg.Retention < 0 {
		return clientv3.NoLease, nil
	}
	r := &c.retained
	if err := r.lock(ctx); err != nil {
		return 0, err
	}
	defer r.unlock()
	slice := max(c.cfg.Retention/10, time.Second)
	if r.id != clientv3.NoLease && r.puts < claimsPerLease {
		if sure, wall := c.clock.Now().Since(r.from); max(sure, wall) < slice {
			r.puts++
			return r.id, nil
		}
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), c.store.timeout)
	defer cancel()
	now := c.clock.Now()
	for try := 0; ; try++ {
		c.store.requests.Add(1)
		resp, err := c.lease.Grant(ctx, int64(seconds(c.cfg.Retention+slice)/time.Second))
		if err == nil {
			r.id, r.from, r.puts = resp.ID, now, 1
			return r.id, nil
		}
		if wire.MayBeDone(err) || isTransient(err) {
			if backOff(ctx, try) {
				continue // a lease whose reply was lost ends by itself
			}
		}
		return 0, fmt.Errorf("granting a lease for the retention: %w", wire.WithCause(ctx, err))
	}
}

// forgetRetention drops the lease for done work if it is gone; false says that
// it is not, so that the missing lease was another.
func (c *Client) forgetRetention(id clientv3.LeaseID) bool {
	if id == clientv3.NoLease {
		return false
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(c.io), c.store.timeout)
	defer cancel()
	c.store.requests.Add(1)
	resp, err := c.lease.TimeToLive(ctx, id)
	if err != nil || resp.TTL > 0 {
		return false
	}
	if err := c.retained.lock(ctx); err != nil {
		return false
	}
	defer c.retained.unlock()
	if c.retained.id == id {
		c.retained.id = clientv3.NoLease
	}
	return true
}
