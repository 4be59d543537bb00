package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
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
}

// there notes that the id of an item was there, given its place.
func (e *enqueuing) there(q *Queue, it Item, at []*mvccpb.KeyValue) {
	for _, kv := range at {
		p, err := decode[place](kv.Key, kv.Value)
		if err == nil && strings.HasPrefix(q.keys.root+p.Key, q.keys.dead()) {
			e.dead = append(e.dead, it)
		}
	}
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
	return q.change(ctx, "enqueue", "replace", it.id, func(f found) ([]clientv3.Op, error) {
		if f.Where != Dead {
			return nil, errAlive
		}
		c, st := q.begun(it, now)
		ops := []clientv3.Op{q.activate(), clientv3.OpDelete(f.key), clientv3.OpPut(q.keys.item(it.id), encode(c))}
		return append(ops, q.move(st, q.indexKey(st, now), place{Verb: "replace"})...), nil
	})
}
