package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/item"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// debouncing is what the option Debounce asks for.
type debouncing struct {
	asked       bool
	quiet, most time.Duration
}

// Debounce delays the item until its id has not been enqueued for quiet. While the item has not vested, each
// enqueue of the id with this option replaces its payload. The item then becomes visible quiet later, but at most
// the time most after it was first enqueued. Topic, priority and attempts stay. Enqueue returns true if it
// added the item or replaced its payload. This is one transaction; if two enqueues come at the same time, one
// of the payloads remains.
//
// Enqueue returns false, and the item is handled with an earlier payload, if the item has vested, a worker has
// it, or it waits for another attempt. So it does while the id of a completed item is remembered: give a queue of
// such items a negative Config.Retention. Times are those of the wall clocks of the processes that enqueue.
//
// The option needs ID or Unique. It takes the place of Delay and At. Both times are more than zero, and most is not
// less than quiet. Op ignores the option for an item that is there.
func Debounce(quiet, most time.Duration) ItemOption {
	return itemOption(func(it *Item) {
		it.debounce = debouncing{asked: true, quiet: quiet, most: most}
		it.vesting, it.delay = time.Time{}, quiet
	})
}

func (it Item) checkDebounce() error {
	switch d := it.debounce; {
	case !d.asked:
	case d.quiet <= 0 || d.most < d.quiet:
		return fmt.Errorf("item %q: Debounce(%v, %v) is not of two times above zero, the second not less than the first",
			it.id, d.quiet, d.most)
	case !it.given && !it.unique.asked:
		return errors.New("the option Debounce needs ID or Unique")
	}
	return nil
}

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
		if f.Where != Later || f.Attempts > 0 {
			return nil, errVested
		}
		return item.Debounce{
			Keys: q.keys, Entry: f.entry, Before: f.content, Payload: it.payload,
			Quiet: it.debounce.quiet, Most: it.debounce.most, Now: now,
		}.Build(), nil
	})
}
