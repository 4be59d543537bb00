package etcdclaims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TryAcquireEach claims each of the keys that is free, independently of the
// others. It takes as few round trips as etcd's limit of operations allows.
// Both results have one entry per key, in the order of keys: a claim, or an
// error as of TryAcquire.
//
// ctx bounds the call, not the claims. The call also ends after
// max(Config.TTL/2, 5 s) plus 1 ms for each key.
func (c *Client) TryAcquireEach(ctx context.Context, keys []string, opts ...ManyOption) ([]*Claim, []error) {
	claims, errs := make([]*Claim, len(keys)), make([]error, len(keys))
	o, err := optionsOf(c, opts)
	for i, key := range keys {
		if errs[i] = err; err == nil {
			errs[i] = o.checkKey(key)
		}
	}
	if err == nil {
		markRepeats(keys, errs)
	}
	if err != nil || c.Passthrough() {
		for i, key := range keys {
			if errs[i] == nil {
				claims[i] = &Claim{key: key}
			}
		}
		return claims, errs
	}
	if len(keys) == 1 && errs[0] == nil { // it shares a request with other calls for the key
		o.mode = protocol.Exclusive{Layout: c.store.Layout, Key: keys[0]}
		t, err := c.try(ctx, keys[0], o)
		if errs[0] = err; err == nil {
			claims[0] = t.claim()
		}
		return claims, errs
	}
	hooked := c.events.callsBegan(ctx, keys, errs)
	// Many keys take longer than one: a second more for each thousand.
	ctx, cancel := context.WithTimeout(ctx, c.bound()+time.Duration(len(keys))*time.Millisecond)
	defer cancel()
	var todo []int
	for i := range keys {
		if errs[i] == nil {
			todo = append(todo, i)
		}
	}
	c.stats.attempts.Add(int64(len(todo)))
	for try := 0; len(todo) > 0; try++ {
		if try > 0 && !retry.PauseUnless(ctx, c.closing, try) {
			for _, i := range todo {
				errs[i] = c.acquireError(keys[i], c.ended(txn.WithCause(ctx, errs[i])))
			}
			break
		}
		todo = c.tryEach(ctx, keys, o, todo, claims, errs, hooked)
	}
	for i, key := range keys {
		c.events.callEnded(hooked.of(i), Call{Key: key}, o.inLine, errs[i])
	}
	return claims, errs
}

func markRepeats(keys []string, errs []error) {
	seen := make(map[string]bool, len(keys))
	for i, key := range keys {
		if seen[key] && errs[i] == nil {
			errs[i] = fmt.Errorf("%w: %q stands twice among the keys", ErrInvalidKey, key)
		}
		seen[key] = true
	}
}

// tryEach makes one attempt for each of the keys at todo, and returns those that
// want another.
func (c *Client) tryEach(ctx context.Context, keys []string, o *acquireOptions, todo []int, claims []*Claim, errs []error, hooked hookedCalls) (again []int) {
	attempts := make(map[int]*attempt)
	var noSession error
	next := func(n int) (txn.Request, bool) {
		s, err := c.session(ctx, o.ttl, false)
		if err != nil {
			noSession = err
			return txn.Request{}, false
		}
		a := c.newAttempt(s, protocol.Exclusive{Layout: c.store.Layout, Key: keys[todo[n]]}, o)
		a.hooked = hooked.of(todo[n])
		attempts[n] = a
		return a.takeOnce(), true
	}
	made := c.store.Each(ctx, len(todo), next, func(n int, resp *clientv3.TxnResponse, err error) {
		a, i := attempts[n], todo[n]
		delete(attempts, n)
		t, retry, err := c.conclude(ctx, a, resp, err)
		c.keys.Unregister(a.ID)
		if t != nil {
			claims[i], errs[i] = &Claim{t: t, key: a.user}, nil
			return
		}
		a.s.unreserve()
		if errs[i] = err; retry {
			again = append(again, i)
			return
		}
		if errors.Is(err, ErrHeld) {
			c.stats.contended.Add(1)
		}
		errs[i] = c.acquireError(a.user, c.ended(err))
	})
	for _, i := range todo[made:] { // the others would fail, too
		if errs[i] = txn.Failed(noSession); isPassing(noSession) {
			again = append(again, i)
		} else {
			errs[i] = c.acquireError(keys[i], c.ended(errs[i]))
		}
	}
	return again
}

// TryAcquireAll claims all of the keys or none, in one transaction, so that
// all claims have the same fence. Each claim is released on its own.
//
// Each key takes two of the conditions that etcd allows in a transaction, 128
// by default. With that limit, more than 58 keys return ErrTooLarge.
//
// The errors are those of TryAcquire. A *HeldError names the first key that is
// not free.
func (c *Client) TryAcquireAll(ctx context.Context, keys []string, opts ...AllOption) ([]*Claim, error) {
	o, err := optionsOf(c, opts)
	if err != nil {
		return nil, errtext.CallOfAll(fmt.Sprintf("acquire %d keys", len(keys)), err)
	}
	errs := make([]error, len(keys))
	for i, key := range keys {
		errs[i] = o.checkKey(key)
	}
	markRepeats(keys, errs)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.Passthrough() {
		claims := make([]*Claim, len(keys))
		for i, key := range keys {
			claims[i] = &Claim{key: key}
		}
		return claims, nil
	}
	if len(keys) == 0 {
		return nil, nil
	}
	if need, limit := 2*len(keys)+len(o.cmps), c.store.MaxOps()-opsReserved; need > limit {
		return nil, fmt.Errorf("%w: %d keys at once take %d conditions, the limit is %d", ErrTooLarge, len(keys), need, limit)
	}
	if size := len(keys) * len(o.note); size > maxRequestBytes-bytesReserved-len(keys)*(MaxKeyBytes+1024) {
		return nil, fmt.Errorf("%w: notes of %d bytes in all", ErrTooLarge, size)
	}
	hooked := c.events.callsBegan(ctx, keys, errs)
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	c.stats.attempts.Add(int64(len(keys)))
	claims, err := c.allLoop(ctx, keys, o, hooked)
	for i, key := range keys {
		c.events.callEnded(hooked.of(i), Call{Key: key}, o.inLine, err)
	}
	return claims, err
}

// allLoop makes attempts until one has an answer.
func (c *Client) allLoop(ctx context.Context, keys []string, o *acquireOptions, hooked hookedCalls) ([]*Claim, error) {
	for try := 0; ; try++ {
		terms, again, err := c.tryAll(ctx, keys, o, hooked)
		if terms != nil {
			claims := make([]*Claim, len(keys))
			for i, t := range terms {
				claims[i] = t.claim()
			}
			return claims, nil
		}
		if !again {
			if errors.Is(err, ErrHeld) {
				c.stats.contended.Add(1)
			}
			return nil, c.acquireError(keys[0], c.ended(err))
		}
		if !retry.PauseUnless(ctx, c.closing, try) {
			return nil, c.acquireError(keys[0], c.ended(txn.WithCause(ctx, err)))
		}
	}
}

// tryAll makes one attempt to claim all keys. Without terms, again is whether another
// one makes sense.
func (c *Client) tryAll(ctx context.Context, keys []string, o *acquireOptions, hooked hookedCalls) (terms []*term, again bool, err error) {
	s, err := c.session(ctx, o.ttl, false)
	if err != nil {
		return nil, isPassing(err), txn.Failed(err)
	}
	reserved := 1 + s.reserveMore(len(keys)-1)
	defer func() {
		for range reserved {
			s.unreserve()
		}
	}()
	if reserved < len(keys) {
		return nil, true, nil // they go where there is room for all of them
	}
	// One attempt id for all: one void key stops them all.
	lead := c.newAttempt(s, protocol.Exclusive{Layout: c.store.Layout, Key: keys[0]}, o)
	defer c.keys.Unregister(lead.ID)
	attempts := lead.forEach(keys)
	for i, a := range attempts {
		a.hooked = hooked.of(i)
	}
	lead.with = attempts[1:]
	step := protocol.TakeAll{&lead.Try}
	for _, a := range lead.with {
		step = append(step, &a.Try)
	}
	resp, rev, err := lead.send(ctx, step.Build())
	switch {
	case err != nil:
		if errors.Is(err, ErrUnknown) {
			for _, a := range attempts[1:] { // the first is being undone
				a.Ticket = lead.Ticket
				a.doubt(err)
				a.undo()
			}
		}
		return nil, s.gone(ctx, err, len(o.ops) > 0) || txn.IsTransient(err), err
	case resp == nil && rev == 0:
		return nil, true, nil
	case resp != nil:
		each := step.Judge((*pb.TxnResponse)(resp))
		if rev = each.Rev; rev == 0 {
			for _, i := range each.Stray {
				attempts[i].undo() // carried out before; the first was taken away since
			}
			err := c.verdictAll(ctx, attempts, each, len(o.cmps) > 0)
			if len(each.Stray) > 0 && len(o.ops) > 0 {
				return nil, false, txn.Unknown(cmp.Or(err, ErrHeld)) // once more would be twice
			}
			return nil, err == nil, err
		}
	}
	terms, err = c.grantAll(ctx, attempts, rev)
	reserved -= len(terms)
	if err != nil {
		return nil, false, afterSent(len(o.ops) > 0 && !errors.Is(err, ErrLost), err)
	}
	return terms, false, nil
}

// forEach returns one attempt for each key, all of them with this one's id.
func (a *attempt) forEach(keys []string) []*attempt {
	bare := *a.opts
	bare.cmps, bare.ops = nil, nil // they are once in the request
	attempts := make([]*attempt, len(keys))
	for i, key := range keys {
		one := *a
		one.Mode, one.user, one.opts = protocol.Exclusive{Layout: a.Layout, Key: key}, key, &bare
		one.Ask.If, one.Ask.Then = nil, nil
		attempts[i] = &one
	}
	return attempts
}

// grantAll makes the terms of attempts that succeeded in one transaction. With an
// error it has given up those that it returns.
func (c *Client) grantAll(ctx context.Context, attempts []*attempt, rev int64) (terms []*term, err error) {
	for _, a := range attempts {
		t, err := c.grant(ctx, a, rev)
		if t == nil {
			for i, t := range terms {
				t.giveUp(attempts[i])
			}
			for _, rest := range attempts[len(terms):] {
				rest.undo()
			}
			return terms, err
		}
		terms = append(terms, t)
	}
	return terms, nil
}

// verdictAll returns why not all keys could be claimed. Nil means: try again.
func (c *Client) verdictAll(ctx context.Context, attempts []*attempt, each protocol.Each, conditions bool) error {
	if err := c.store.LearnEpoch(each.Epoch, each.At); err != nil {
		return err
	}
	epoch := c.store.Epoch()
	for i, a := range attempts {
		verdict, err := a.Judge(each.Seen[i], epoch)
		switch {
		case err != nil || verdict.Outcome == protocol.OtherEpoch:
			return err
		case verdict.Outcome == protocol.HeldByOther:
			return a.heldBy(ctx, verdict.Own, verdict.Waiting)
		case verdict.Outcome == protocol.BehindLine:
			return &HeldError{Info: Info{Key: a.user, Waiting: verdict.Waiting}}
		}
	}
	if conditions {
		return ErrRefused
	}
	return nil
}
