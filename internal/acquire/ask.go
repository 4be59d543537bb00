package acquire

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
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
	kind   any
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

// together makes one attempt, for others too, or shares that of another.
func (ac *Acquirer) together(ctx context.Context, key string, o *Call, attempt Make) (r Result) {
	o.ask = nil
	k := askKey{key: key, beside: o.Beside != nil, note: o.Note != nil, meta: txn.MetadataOf(ctx).Name}
	if o.Mode.Keys().Record {
		o.Mode = ac.Knowing(o.Mode)
	}
	keys := o.Mode.Keys()
	if keys.Joins {
		return ac.Alone(ctx, key, o, attempt) // it shares a round trip with others
	}
	k.kind, k.slots = o.Kind, keys.Slots
	a, first := ac.asks.Join(k)
	for !first {
		if r = ac.shareAnswer(ctx, a, o); r.Err != nil || a.Answer().mode == nil || keys.Slots == 0 {
			return r
		}
		a, first = ac.asks.Join(k) // another slot may be free, and no time was lost
	}
	o.ask = a
	r = Result{Next: Retry} // for the others, if a hook panics
	defer func() {
		ac.asks.Answer(a, func() verdict { return ac.verdictFor(ctx, r, o) })
	}()
	r = ac.Alone(ctx, key, o, attempt)
	return r
}

// shareAnswer waits for the answer to another's ask.
func (ac *Acquirer) shareAnswer(ctx context.Context, a *ask, o *Call) Result {
	late := time.NewTimer(time.Until(o.Until))
	defer late.Stop()
	select {
	case <-a.Answered():
	case <-late.C:
		return Result{Err: txn.ErrNoAnswer}
	case <-ctx.Done():
		return Result{Err: txn.ContextError(ctx)}
	}
	v := a.Answer()
	if v.learnt && o.Beside != nil {
		o.Beside.Changed(v.beside)
	}
	if v.mode != nil {
		o.Mode = v.mode
	}
	if errors.Is(v.err, claimerr.ErrHeld) {
		return Result{Err: ac.Errors.Copy(v.err)}
	}
	return RetryIf(v.again, v.err)
}

// verdictFor returns what the outcome of an attempt means for those that share
// its ask. What concerned only the first, they find out for themselves.
func (ac *Acquirer) verdictFor(ctx context.Context, r Result, o *Call) verdict {
	again, err := r.Next != Stop, r.Err
	switch {
	case o.Mode.Keys().Record && (r.Term != nil || r.Next == Retry):
		learnt := o.Mode
		if r.Term != nil { // the record is there now, and another slot is tried
			learnt = protocol.Another(r.Term.Mode)
		}
		return verdict{again: true, mode: learnt}
	case r.Term != nil:
		return verdict{err: ac.Errors.HeldBy(r.Term)}
	case errors.Is(err, claimerr.ErrHeld):
		return verdict{err: err}
	case r.Next == Retry && o.Beside != nil:
		return verdict{again: true, beside: o.Beside.Known(), learnt: true}
	case again:
		return verdict{again: true, err: txn.Failed(err)}
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, claimerr.ErrLost), errors.Is(err, txn.ErrUnknown), errors.Is(err, txn.ErrTooLarge):
		return verdict{again: true}
	}
	return verdict{err: err}
}
