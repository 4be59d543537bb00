package queue

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/internal/item"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// postpone gives an item that has not vested the payload of a later one.
func (q *Queue) postpone(ctx context.Context, it Item, e *enqueuing) error {
	return q.change(ctx, nil, "enqueue", item.VerbDebounce, it.id, func(f found) (*pb.TxnRequest, error) {
		switch {
		case f.Where == Dead:
			e.entered(it, item.HadBuried)
			return nil, errKept
		case f.Where != Later || !f.Vesting.Equal(f.content.Vesting): // an attempt has moved that
			return nil, errKept
		case f.content.Key != it.key:
			return nil, fmt.Errorf("the item has the partition key %q, not %q", f.content.Key, it.key)
		}
		return item.Debounce{
			Keys: q.keys, Entry: f.entry, Before: f.content, Payload: it.payload,
			Quiet: it.debounce.quiet, Most: it.debounce.most, Now: e.now,
		}.Build(), nil
	})
}
