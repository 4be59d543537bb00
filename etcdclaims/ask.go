package etcdclaims

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Callers of one client that try for one key at the same time share a request. If it was
// refused, each of them would have been. If it succeeded, the key was held right after that,
// and each of them would have been refused.
type (
	asks = txn.Asks[askKey, verdict]
	ask  = txn.Ask[askKey, verdict]
)

// askKey is what calls have in common that share an answer, a refused permission among
// them. Whether a key is held does not depend on the lease that a caller would bind it to.
type askKey struct {
	key    string
	kind   kind
	slots  int    // as far as known
	beside bool   // it has a key beside it
	note   bool   // etcd may refuse notes
	meta   string // of the context: etcd may refuse the credentials in it
}

// verdict is the answer to an ask, for those that share it.
type verdict struct {
	err    error
	again  bool             // they ask again
	beside *mvccpb.KeyValue // what the first has learnt of the key beside it, if learnt
	learnt bool
	mode   protocol.Mode // what it has learnt of the record of the key, or nil
}

// attemptTogether makes one attempt, for others too, or shares that of another.
func (c *Client) attemptTogether(ctx context.Context, key string, o *acquireOptions, makeAttempt attemptFunc) (t *term, again bool, err error) {
	o.ask = nil
	k := askKey{key: key, beside: o.beside != nil, note: o.note != nil, meta: txn.MetadataOf(ctx).Name}
	o.mode = c.knowing(o.mode)
	keys := o.mode.Keys()
	if keys.Joins {
		return c.attemptAlone(ctx, key, o, makeAttempt) // it shares a round trip with others
	}
	k.kind, k.slots = o.kind, keys.Slots
	a, first := c.asks.Join(k)
	for !first {
		if t, again, err = c.shareAnswer(ctx, a, o); err != nil || a.Answer().mode == nil || keys.Slots == 0 {
			return t, again, err
		}
		a, first = c.asks.Join(k) // another slot may be free, and no time was lost
	}
	o.ask = a
	again = true // for the others, if a hook panics
	defer func() {
		c.asks.Answer(a, func() verdict { return c.verdictFor(ctx, t, again, err, o) })
	}()
	return c.attemptAlone(ctx, key, o, makeAttempt)
}

// shareAnswer waits for the answer to another's ask.
func (c *Client) shareAnswer(ctx context.Context, a *ask, o *acquireOptions) (t *term, again bool, err error) {
	late := time.NewTimer(time.Until(o.until))
	defer late.Stop()
	select {
	case <-a.Answered():
	case <-late.C:
		return nil, false, txn.ErrNoAnswer
	case <-ctx.Done():
		return nil, false, txn.ContextError(ctx)
	}
	v := a.Answer()
	if v.learnt && o.beside != nil {
		o.beside.Changed(v.beside)
	}
	if v.mode != nil {
		o.mode = v.mode
	}
	var held *HeldError
	if !errors.As(v.err, &held) {
		return nil, v.again, v.err
	}
	own := *held
	own.Info.Note = bytes.Clone(held.Info.Note)
	return nil, false, &own
}

// verdictFor returns what the outcome of an attempt means for those that share
// its ask. What concerned only the first, they find out for themselves.
func (c *Client) verdictFor(ctx context.Context, t *term, again bool, err error, o *acquireOptions) verdict {
	switch {
	case o.mode.Keys().Record && (t != nil || again && err == nil):
		learnt := o.mode
		if t != nil { // the record is there now, and another slot is tried
			learnt = protocol.Another(t.Mode)
		}
		return verdict{again: true, mode: learnt}
	case t != nil:
		return verdict{err: c.held(t.info())}
	case errors.Is(err, ErrHeld):
		return verdict{err: err}
	case again && err == nil && o.beside != nil:
		return verdict{again: true, beside: o.beside.Known(), learnt: true}
	case again:
		return verdict{again: true, err: txn.Failed(err)}
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, ErrLost), errors.Is(err, ErrUnknown), errors.Is(err, ErrTooLarge):
		return verdict{again: true}
	}
	return verdict{err: err}
}
