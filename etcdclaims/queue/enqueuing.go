package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/internal/item"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// DeadLetterError is returned by an enqueue of ids that are those of dead letters. These items
// were not added. Redrive makes a dead letter visible again, Cancel removes it, and the option
// OverDead replaces it.
type DeadLetterError struct {
	IDs []string
}

func (e *DeadLetterError) Error() string {
	text := fmt.Sprintf("id %q is a dead letter", e.IDs[0])
	if more := len(e.IDs) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more are", more)
	}
	return text + "; redrive or cancel it, or enqueue with OverDead"
}

// enqueuing is one call of EnqueueAll.
type enqueuing struct {
	now     time.Time
	had     []Item // with the option Debounce, whose ids are there
	dead    []Item // with the option OverDead, whose ids are dead letters
	refused DeadLetterError
}

// entered returns how many items were added, and notes one that is to replace what its id is there for.
func (e *enqueuing) entered(it Item, what item.Entered) (added int) {
	switch {
	case what == item.Added:
		return 1
	case what == item.Had && it.debounce.asked:
		e.had = append(e.had, it)
	case what == item.HadBuried && it.overDead:
		e.dead = append(e.dead, it)
	case what == item.HadBuried:
		e.refused.IDs = append(e.refused.IDs, it.id)
	}
	return 0
}

// overHad has what was there replaced by the items that are to, and returns an error for dead letters of others.
func (q *Queue) overHad(ctx context.Context, e *enqueuing) (n int, err error) {
	for len(e.had)+len(e.dead) > 0 {
		replace, of := q.postpone, &e.had
		if len(e.had) == 0 {
			replace, of = q.replace, &e.dead
		}
		it := (*of)[0]
		*of = (*of)[1:]
		switch err := replace(ctx, it, e); {
		case err == nil:
			n++
		case errors.Is(err, ErrNotFound): // it has gone meanwhile
			some, err := q.enqueue(ctx, []Item{it}, e)
			if n += some; err != nil {
				return n, q.fail("enqueue", err)
			}
		case !errors.Is(err, errKept):
			return n, err
		}
	}
	if len(e.refused.IDs) > 0 {
		return n, q.fail("enqueue", &e.refused)
	}
	return n, nil
}

// errKept is the error of postpone and replace for an item that stays as it is.
var errKept = errors.New("item stays as it is")

// replace puts an item in the place of its dead letter.
func (q *Queue) replace(ctx context.Context, it Item, e *enqueuing) error {
	return q.change(ctx, nil, "enqueue", item.VerbReplace, it.id, func(f found) (*pb.TxnRequest, error) {
		if f.Where != Dead {
			e.entered(it, item.Had)
			return nil, errKept
		}
		return item.Replace{Keys: q.keys, Entry: f.entry, New: q.begun(it, e.now), Now: e.now}.Build(), nil
	})
}

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
