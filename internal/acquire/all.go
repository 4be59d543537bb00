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
	attempts, all := lead.forEach(keys), &protocol.AllOrNone{Acquisition: &lead.Acquisition}
	for i, a := range attempts {
		if a.hooked = hooked(i); i > 0 {
			all.With = append(all.With, &a.Try)
		}
	}
	act := lead.Drive(ctx, all, all.Step(protocol.Event{Kind: protocol.BeginTake}), nil)
	for _, i := range act.Strays {
		attempts[i].Undo() // carried out before; the first was taken away since
	}
	if act.Undo {
		for _, a := range attempts[1:] { // the first is being undone
			a.Follows(&lead.Acquisition)
			a.Undo()
		}
	}
	if act.End == protocol.AnswerWon {
		terms, err := ac.grantAll(ctx, attempts, act.Rev)
		reserved -= len(terms)
		if err != nil {
			return nil, Result{Err: txn.AfterSent(len(o.Then) > 0 && !errors.Is(err, claimerr.ErrLost), err)}
		}
		return terms, Result{}
	}
	r := ac.Conclude(ctx, attempts[act.Of], &act)
	if act.Twice {
		r = Result{Err: txn.Unknown(cmp.Or(r.Err, claimerr.ErrHeld))}
	}
	return nil, r
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
