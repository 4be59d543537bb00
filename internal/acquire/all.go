package acquire

import (
	"cmp"
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// All acquires all of the keys or none, in one transaction. hooked returns the context of the i-th key for the hooks.
func (ac *Acquirer) All(ctx context.Context, keys []string, o *Call, hooked func(i int) context.Context) ([]*term.Term, error) {
	ctx, cancel := context.WithTimeout(ctx, ac.Bound)
	defer cancel()
	ac.Attempts.Add(int64(len(keys)))
	for try := 0; ; try++ {
		terms, r := ac.tryAll(ctx, keys, o, hooked)
		if terms != nil {
			return terms, nil
		}
		if r.Next == Stop {
			if errors.Is(r.Err, claimerr.ErrHeld) {
				ac.Contended.Add(1)
			}
			return nil, ac.explained(keys[0], r.Err)
		}
		if !retry.PauseUnless(ctx, ac.Life.Open.Done(), try) {
			return nil, ac.explained(keys[0], txn.WithCause(ctx, r.Err))
		}
	}
}

// tryAll makes one attempt to claim all keys, which has a result if it has no terms.
func (ac *Acquirer) tryAll(ctx context.Context, keys []string, o *Call, hooked func(i int) context.Context) ([]*term.Term, Result) {
	s, err := ac.Pool.Session(ctx, o.TTL, false)
	if err != nil {
		return nil, RetryIf(claimerr.IsPassing(err), txn.Failed(err))
	}
	reserved := 1 + s.ReserveMore(len(keys)-1)
	defer func() {
		for range reserved {
			s.Unreserve()
		}
	}()
	if reserved < len(keys) {
		return nil, Result{Next: Retry} // they go where there is room for all of them
	}
	// One attempt id for all: one void key stops them all.
	lead := ac.New(s, protocol.Exclusive{Layout: ac.Store.Layout, Key: keys[0]}, o)
	defer lead.End()
	attempts := lead.forEach(keys)
	for i, a := range attempts {
		a.hooked = hooked(i)
	}
	lead.with = attempts[1:]
	step := protocol.TakeAll{&lead.Try}
	for _, a := range lead.with {
		step = append(step, &a.Try)
	}
	resp, rev, err := lead.Send(ctx, step.Build())
	switch {
	case err != nil:
		if errors.Is(err, txn.ErrUnknown) {
			for _, a := range attempts[1:] { // the first is being undone
				a.Ticket = lead.Ticket
				a.doubt(err)
				a.Undo()
			}
		}
		return nil, RetryIf(s.Gone(ctx, err, len(o.Then) > 0) || txn.IsTransient(err), err)
	case resp == nil && rev == 0:
		return nil, Result{Next: Retry}
	case resp != nil:
		each := step.Judge((*pb.TxnResponse)(resp))
		if rev = each.Rev; rev == 0 {
			for _, i := range each.Stray {
				attempts[i].Undo() // carried out before; the first was taken away since
			}
			err := ac.verdictAll(ctx, attempts, each, len(o.If) > 0)
			if len(each.Stray) > 0 && len(o.Then) > 0 {
				return nil, Result{Err: txn.Unknown(cmp.Or(err, claimerr.ErrHeld))} // once more would be twice
			}
			return nil, RetryIf(err == nil, err)
		}
	}
	terms, err := ac.grantAll(ctx, attempts, rev)
	reserved -= len(terms)
	if err != nil {
		return nil, Result{Err: txn.AfterSent(len(o.Then) > 0 && !errors.Is(err, claimerr.ErrLost), err)}
	}
	return terms, Result{}
}

// forEach returns one attempt for each key, all of them with this one's id.
func (a *Attempt) forEach(keys []string) []*Attempt {
	bare := *a.Call
	bare.If, bare.Then = nil, nil // they are once in the request
	attempts := make([]*Attempt, len(keys))
	for i, key := range keys {
		one := *a
		one.Mode, one.User, one.Call = protocol.Exclusive{Layout: a.Layout, Key: key}, key, &bare
		one.Ask.If, one.Ask.Then = nil, nil
		attempts[i] = &one
	}
	return attempts
}

// grantAll makes the terms of attempts that succeeded in one transaction. With an
// error it has given up those that it returns.
func (ac *Acquirer) grantAll(ctx context.Context, attempts []*Attempt, rev int64) (terms []*term.Term, err error) {
	for _, a := range attempts {
		r := ac.Grant(ctx, a, rev)
		if r.Term == nil {
			for i, t := range terms {
				t.GiveUp(attempts[i].Undo)
			}
			for _, rest := range attempts[len(terms):] {
				rest.Undo()
			}
			return terms, r.Err
		}
		terms = append(terms, r.Term)
	}
	return terms, nil
}

// verdictAll returns why not all keys could be claimed. Nil means: try again.
func (ac *Acquirer) verdictAll(ctx context.Context, attempts []*Attempt, each protocol.Each, conditions bool) error {
	if err := ac.Store.LearnEpoch(each.Epoch, each.At); err != nil {
		return err
	}
	epoch := ac.Store.Epoch()
	for i, a := range attempts {
		verdict, err := a.Judge(each.Seen[i], epoch)
		switch {
		case err != nil || verdict.Outcome == protocol.OtherEpoch:
			return err
		case verdict.Outcome == protocol.HeldByOther:
			return a.heldBy(ctx, verdict.Own, verdict.Waiting)
		case verdict.Outcome == protocol.BehindLine:
			return ac.Errors.Held(Holder{Key: a.User, Waiting: verdict.Waiting})
		}
	}
	if conditions {
		return claimerr.ErrRefused
	}
	return nil
}
