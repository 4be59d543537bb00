package etcdclaims

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/term"
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
		o.Mode = protocol.Exclusive{Layout: c.store.Layout, Key: keys[0]}
		t, err := c.try(ctx, keys[0], o)
		if errs[0] = err; err == nil {
			claims[0] = c.claim(t)
		}
		return claims, errs
	}
	hooked := c.events.callsBegan(ctx, keys, errs)
	each := &acquire.Each{Keys: keys, Call: &o.Call, Hooked: hooked.of, Terms: make([]*term.Term, len(keys)), Errs: errs}
	c.line.Each(ctx, each)
	for i, key := range keys {
		if t := each.Terms[i]; t != nil {
			claims[i] = c.claim(t)
		}
		c.events.callEnded(hooked.of(i), Call{Key: key}, o.InLine, errs[i])
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

// TryAcquireAll claims all of the keys or none, in one transaction, so that
// all claims have the same fence. Each claim is released on its own.
//
// Each key takes two of the conditions that etcd allows in a transaction, 128
// by default. With that limit, more than 58 keys return ErrTooLarge.
//
// The errors are those of TryAcquire. A *HeldError names the first key that is
// not free. Without keys the call returns no claims and no error.
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
	if need, limit := 2*len(keys)+len(o.If), c.store.MaxOps()-opsReserved; need > limit {
		return nil, fmt.Errorf("%w: %d keys at once take %d conditions, the limit is %d", ErrTooLarge, len(keys), need, limit)
	}
	if size := len(keys) * len(o.Note); size > maxRequestBytes-bytesReserved-len(keys)*(MaxKeyBytes+1024) {
		return nil, fmt.Errorf("%w: notes of %d bytes in all", ErrTooLarge, size)
	}
	hooked := c.events.callsBegan(ctx, keys, errs)
	terms, err := c.line.All(ctx, keys, &o.Call, hooked.of)
	for i, key := range keys {
		c.events.callEnded(hooked.of(i), Call{Key: key}, o.InLine, err)
	}
	if err != nil {
		return nil, err
	}
	claims := make([]*Claim, len(keys))
	for i, t := range terms {
		claims[i] = c.claim(t)
	}
	return claims, nil
}
