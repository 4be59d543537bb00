package contract

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
)

func testQueueDeadLetters(t *trial) {
	q := t.opened("a", queue.Config{})
	t.enqueue(q, "x")
	t.ok(t.items(q, 1, "x")[0].Discard(t.ctx, "no use"))
	for info, err := range q.DeadLetters(t.ctx) {
		t.ok(err)
		if info.ID != "x" || !strings.Contains(info.Why, "no use") {
			t.Fatalf("dead letter %+v", info)
		}
	}
	t.ok(q.Redrive(t.ctx, "x"))
	t.ok(t.await(q, "x", 1).Discard(t.ctx, "again"))
	n, err := q.Purge(t.ctx, time.Now().Add(time.Hour))
	t.ok(err)
	if n != 1 {
		t.Fatalf("purged %d dead letters, want 1", n)
	}
	_, err = q.Look(t.ctx, "x")
	t.is(err, queue.ErrNotFound)
}

// An id of a dead letter is not enqueued, and the caller learns why. With OverDead the
// item replaces the dead letter.
func testQueueOverDead(t *trial) {
	q := t.opened("a", queue.Config{})
	t.enqueue(q, "x")
	t.ok(t.items(q, 1, "x")[0].Discard(t.ctx, "no use"))
	added, err := q.EnqueueAll(t.ctx, []queue.Item{queue.NewItem([]byte("x"), queue.ID("x")), queue.NewItem([]byte("y"), queue.ID("y"))})
	var dead *queue.DeadLetterError
	if added != 1 || !errors.As(err, &dead) || !slices.Equal(dead.IDs, []string{"x"}) {
		t.Fatalf("of a new item and a dead letter's id %d were added: %v", added, err)
	}
	t.isAt(q, "x", queue.Dead)
	t.enqueue(q, "x", queue.OverDead())
	t.items(q, 1, "y")
	if l := t.await(q, "x", 1); len(l.History()) > 0 {
		t.Fatalf("an item in the place of a dead letter has the history %+v", l.History())
	}
	t.items(q, 1, "")
}
