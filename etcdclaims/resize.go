package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Resize changes how many slots the key has to n; see [Slots]. From then on calls must
// ask for n. Callers in line continue to wait, whatever number they asked for.
//
// Callers in line take new slots at once, one after the other. With fewer slots, the
// holders of surplus slots, those from n on, keep them until they release them.
// Surplus slots are not handed over. So the key can have more than n holders until
// these are released.
//
// Resize also stores the number of a key that has none yet. If n is 0, Resize removes
// the number, so that the next call with Slots sets it. Then no slot may be held, and
// no caller may wait: otherwise Resize returns ErrHeld. It also returns ErrHeld if
// the key is held by a claim without Slots.
//
// If the outcome is not known, Resize returns ErrUnknown. Calling again is safe.
func (c *Client) Resize(ctx context.Context, key string, n int) error {
	s := &slots{n: max(n, 1)}
	err := c.checkClaimed(key)
	if err == nil {
		err = s.of(key)
	}
	if err == nil {
		err = checkSlots(n, 0)
	}
	if err != nil {
		return callError("resize", key, err)
	}
	if c.Passthrough() {
		return nil
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	sent := false // a request that may have been carried out
	for try := 0; ; try++ {
		again, err := c.resize(ctx, s, n)
		if err == nil && !again {
			return nil
		}
		unknown := errors.Is(err, ErrUnknown)
		sent = sent || unknown
		if err != nil && !unknown && !txn.IsTransient(err) {
			return callError("resize", key, afterSent(sent, err))
		}
		if !retry.PauseUnless(ctx, c.closing, try) {
			return callError("resize", key, afterSent(sent, c.ended(txn.WithCause(ctx, err))))
		}
	}
}

// resize makes one attempt. again is true if something has changed meanwhile.
func (c *Client) resize(ctx context.Context, s *slots, n int) (again bool, err error) {
	l := c.store.layout
	own := l.own(s.key)
	resp, err := c.read(ctx, s.readRecord(l), s.readAll(l), c.store.countWaiting(s.family))
	if err != nil {
		return false, err
	}
	record, has, rev := firstKV(resp, 0), *s, int64(0)
	if record != nil {
		rev = record.ModRevision
	}
	if !has.learn(record) {
		return false, heldFor{&HeldError{Info: c.info(s.key, record, nil, 0)}}
	}
	cmps := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(own), "=", rev)}
	op := clientv3.OpPut(own, s.record())
	switch {
	case has.unset && n == 0 || !has.unset && has.n == n:
		return false, nil
	case n == 0:
		held, waiting := resp.Responses[1].GetResponseRange().Kvs, resp.Responses[2].GetResponseRange().Count
		held = slices.DeleteFunc(held, func(kv *mvccpb.KeyValue) bool { return s.number(kv.Key, l) < 0 })
		if len(held) > 0 {
			return false, fmt.Errorf("%d of its slots are held: %w", len(held), heldFor{&HeldError{Info: c.info(s.key, held[0], nil, waiting)}})
		}
		if waiting > 0 {
			return false, heldFor{&HeldError{Info: Info{Key: s.key, Slots: has.n, Waiting: waiting}}}
		}
		op = clientv3.OpDelete(own)
		cmps = append(cmps, c.nobodyInLine(s.family), clientv3.Compare(clientv3.ModRevision(l.own(SlotKey(s.key, 0))).WithRange(s.end(l)), "<", resp.Header.Revision+1)) // no slot was taken since
	}
	got, err := c.store.Do(ctx, txn.Request{Key: s.family, Also: []string{s.key}, In: txn.Of(cmps, []clientv3.Op{op}, nil)})
	return err == nil && !got.Succeeded, err
}
