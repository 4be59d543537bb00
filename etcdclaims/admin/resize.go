package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Resize changes how many slots the key has to n; see etcdclaims.Slots. From then on calls must
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
func Resize(ctx context.Context, claims *etcdclaims.Client, key string, n int) error {
	c := of(claims)
	err := c.CheckClaimed(key)
	if err == nil {
		err = c.CheckKey(etcdclaims.SlotKey(key, max(n, 1)-1)) // the longest
	}
	if err == nil && (n < 0 || n > etcdclaims.MaxSlots) {
		err = fmt.Errorf("etcdclaims: %d slots: want 0 to %d", n, etcdclaims.MaxSlots)
	}
	if err != nil {
		return errtext.Call("resize", key, err)
	}
	if claims.Passthrough() {
		return nil
	}
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	sent := false // a request that may have been carried out
	for try := 0; ; try++ {
		again, err := c.resize(ctx, key, n)
		if err == nil && !again {
			return nil
		}
		unknown := errors.Is(err, etcdclaims.ErrUnknown)
		sent = sent || unknown
		if err != nil && !unknown && !txn.IsTransient(err) {
			return errtext.Call("resize", key, txn.AfterSent(sent, err))
		}
		if !retry.PauseUnless(ctx, c.Closing(), try) {
			return errtext.Call("resize", key, txn.AfterSent(sent, c.Ended(txn.WithCause(ctx, err))))
		}
	}
}

// resize makes one attempt. again is true if something has changed meanwhile.
func (c client) resize(ctx context.Context, key string, n int) (again bool, err error) {
	own, family := c.Layout().Own(key), keyspace.SlotFamily(key)
	first, end := c.Layout().Own(etcdclaims.SlotKey(key, 0)), own+keyspace.SlotSuffix+":" // a colon follows the digits
	resp, err := c.Read(ctx, clientv3.OpGet(own), clientv3.OpGet(first, clientv3.WithRange(end)),
		clientv3.OpGet(c.Layout().Waiting(family), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	if err != nil {
		return false, err
	}
	record, has, rev := txn.First(resp, 0), 0, int64(0)
	if record != nil {
		h, err := c.Holder(record.Value)
		if err != nil || h.Kind != core.KindSlots || h.Slots < 1 { // the key is held as a whole
			return false, c.Held(key, record, 0)
		}
		has, rev = h.Slots, record.ModRevision
	}
	if has == n {
		return false, nil
	}
	cmps := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(own), "=", rev)}
	op := clientv3.OpPut(own, c.EncodeSlots(n))
	if n == 0 {
		held := slices.DeleteFunc(txn.Kvs(resp, 1), func(kv *mvccpb.KeyValue) bool {
			return !isSlot(strings.TrimPrefix(string(kv.Key), own+keyspace.SlotSuffix))
		})
		waiting := txn.Count(resp, 2)
		if len(held) > 0 {
			return false, fmt.Errorf("%d of its slots are held: %w", len(held), c.Held(key, held[0], waiting))
		}
		if waiting > 0 {
			return false, c.Held(key, nil, waiting)
		}
		op = clientv3.OpDelete(own)
		cmps = append(cmps, core.NobodyInLine(c.Layout(), family),
			clientv3.Compare(clientv3.ModRevision(first).WithRange(end), "<", resp.Header.Revision+1)) // no slot was taken since
	}
	got, err := c.Store().Do(ctx, txn.Request{Key: family, Also: []string{key}, In: txn.Of(cmps, []clientv3.Op{op}, nil)})
	return err == nil && !got.Succeeded, err
}

// isSlot reports whether a key that begins as those of slots ends as one.
func isSlot(number string) bool {
	i, err := strconv.Atoi(number)
	return err == nil && i >= 0 && i < etcdclaims.MaxSlots && strconv.Itoa(i) == number
}
