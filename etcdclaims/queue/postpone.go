package queue

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/internal/item"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// debounce has the items that were there replaced, of those that have the option.
func (q *Queue) debounce(ctx context.Context, e *enqueuing) (n int, err error) {
	for _, it := range e.had {
		switch err := q.postpone(ctx, it, e.now); {
		case err == nil:
			n++
		case errors.Is(err, ErrNotFound): // it has gone meanwhile
			some, err := q.enqueue(ctx, []Item{it}, &enqueuing{now: e.now})
			if n += some; err != nil {
				return n, q.fail("enqueue", err)
			}
		case !errors.Is(err, errVested):
			return n, err
		}
	}
	return n, nil
}

// errVested is the error of postpone for an item that is to be handled as it is.
var errVested = errors.New("item has vested")

// postpone gives an item that has not vested the payload of a later one.
func (q *Queue) postpone(ctx context.Context, it Item, now time.Time) error {
	return q.change(ctx, nil, "enqueue", item.VerbDebounce, it.id, func(f found) (*pb.TxnRequest, error) {
		if f.Where != Later || !f.Vesting.Equal(f.content.Vesting) { // an attempt has moved that
			return nil, errVested
		}
		return item.Debounce{
			Keys: q.keys, Entry: f.entry, Before: f.content, Payload: it.payload,
			Quiet: it.debounce.quiet, Most: it.debounce.most, Now: now,
		}.Build(), nil
	})
}
