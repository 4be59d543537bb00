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
	now  time.Time
	dead []Item // whose ids are dead letters
	had  []Item // with the option Debounce, whose ids are there
}

// entered returns how many items were added, and notes one that is to replace what its id is there for.
func (e *enqueuing) entered(it Item, what item.Entered) (added int) {
	switch {
	case what == item.Added:
		return 1
	case what == item.Had && it.debounce.asked:
		e.had = append(e.had, it)
	case what == item.HadBuried:
		e.dead = append(e.dead, it)
	}
	return 0
}

// overDead replaces dead letters by items that have the option, and returns an error for the
// others.
func (q *Queue) overDead(ctx context.Context, e *enqueuing) (n int, err error) {
	var refused DeadLetterError
	for _, it := range e.dead {
		if !it.overDead {
			refused.IDs = append(refused.IDs, it.id)
			continue
		}
		switch err := q.replace(ctx, it, e.now); {
		case err == nil:
			n++
		case errors.Is(err, ErrNotFound): // it was cancelled meanwhile
			some, err := q.enqueue(ctx, []Item{it}, &enqueuing{now: e.now})
			if n += some; err != nil {
				return n, q.fail("enqueue", err)
			}
		case !errors.Is(err, errAlive):
			return n, err
		}
	}
	if len(refused.IDs) > 0 {
		return n, q.fail("enqueue", &refused)
	}
	return n, nil
}

// errAlive is the error of replace for an item that is no dead letter any more.
var errAlive = errors.New("item is no dead letter")

// replace puts an item in the place of its dead letter.
func (q *Queue) replace(ctx context.Context, it Item, now time.Time) error {
	return q.change(ctx, nil, "enqueue", item.VerbReplace, it.id, func(f found) (*pb.TxnRequest, error) {
		if f.Where != Dead {
			return nil, errAlive
		}
		return item.Replace{Keys: q.keys, Entry: f.entry, New: q.begun(it, now), Now: now}.Build(), nil
	})
}
