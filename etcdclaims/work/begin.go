package work

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/beside"
	"github.com/etcdclaims/claims/internal/record"
)

// TryBegin claims the key as etcdclaims.Client.TryAcquire does, and keeps a durable record of
// the work that the key names: its attempts and its outcome. The key serves as
// a deduplication key: work that is done is not begun again by any client.
//
// Work whose owner died is begun again, with a greater fence and attempt
// number. Previous then returns the record of that owner. If the work was
// begun with AtMostOnce, or has had Config.MaxAttempts, it is dead instead.
//
// With etcdclaims.Supersede the call also takes the work over from an earlier claim of
// this client. With Again it begins work that is done, dead or waiting. The
// note of etcdclaims.Note is stored in the record.
//
// TryBegin takes one round trip if the key has no record, and two otherwise.
// The first call of a client takes one more, for the lease of its records.
//
// The error matches ErrDone, ErrDead or ErrBackoff if the work cannot be begun
// now; it is an *Error with the record. Other errors are those of
// etcdclaims.Client.TryAcquire.
func (c *Runner) TryBegin(ctx context.Context, key string, opts ...Option) (*Work, error) {
	return c.begin(ctx, key, opts, (*etcdclaims.Client).TryAcquire)
}

// Begin does what TryBegin does, but waits in line while the key is held, as
// etcdclaims.Client.Acquire does, also across the loss of the client's session. It does not wait
// for the next attempt of failed work: it returns ErrBackoff.
//
// Begin does not wait for its turn to learn how the work ends. When an outcome is
// recorded with which the work cannot be begun, all callers that wait return at
// once. That takes one watch of the record, and one read, for each client. If the
// event is lost, it takes up to a third of the TTL longer.
//
// Callers of one client that wait for the same work have one place in line between
// them: they take it one after the other, so callers of other clients can come
// between them. A caller with Supersede has a place of its own.
//
// If the outcome of an attempt stays unknown because etcd does not answer, Begin
// waits until that attempt is undone, and makes another. The first does not count.
// With Then it returns etcdclaims.ErrUnknown, since operations are not undone.
func (c *Runner) Begin(ctx context.Context, key string, opts ...Option) (*Work, error) {
	return c.begin(ctx, key, opts, (*etcdclaims.Client).Acquire)
}

// acquire is TryAcquire or Acquire.
type acquire func(c *etcdclaims.Client, ctx context.Context, key string, opts ...etcdclaims.AcquireOption) (*etcdclaims.Claim, error)

func (c *Runner) begin(ctx context.Context, key string, opts []Option, acquire acquire) (*Work, error) {
	if err := c.refusal(); err != nil {
		return nil, err
	}
	o, claims, err := split(opts)
	if err != nil {
		return nil, fmt.Errorf("begin work %q: %w", key, err)
	}
	w := &plan{known: record.Known{Key: key}, opts: o, c: c}
	if c.host != nil {
		claims = append(claims, beside.Option{Companion: w})
		defer w.over()
	}
	cl, err := acquire(c.claims, ctx, key, claims...)
	if err != nil {
		if v, ok := err.(*beside.Verdict); ok { //nolint:errorlint // a wrapped one keeps what is around it
			err = v.Err
		}
		return nil, err
	}
	return c.newWork(cl, w), nil
}

// newWork returns the handle of work that was begun.
func (c *Runner) newWork(cl *etcdclaims.Claim, w *plan) *Work {
	out := &Work{Claim: cl, c: c, record: w.known.Next()}
	out.record.AtMostOnce = w.opts.atMostOnce
	if c.host == nil {
		return out
	}
	out.term, out.lease = beside.TermOf(cl), w.lease
	out.term.OwnedBy(out)
	out.record = w.record()
	out.record.Fence = cl.Fence()
	if prev := w.known.Prev; prev != nil {
		if out.previous = *prev; w.orphan() {
			out.previous.State = StateOrphaned
			c.stats.tookOver.Add(1)
		}
	}
	c.records.Own(w.lease, out)
	return out
}
