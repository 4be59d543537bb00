package queue_test

import (
	"testing"

	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// The items of a key are handled one after the other, in the order of the queue, and delay no other key.
func TestPartitionKeys(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		for _, id := range []string{"a1", "a2", "a3", "b1", "c"} {
			w.enqueue(q, id, map[byte]queue.ItemOption{'a': queue.PartitionKey("a"), 'b': queue.PartitionKey("b"), 'c': queue.PartitionKey("")}[id[0]])
		}
		got := w.tryClaim(q, 5)
		w.want(ids(got), "a1 b1 c")
		w.want(got[0].PartitionKey(), "a")
		w.want(w.look(q, "a2").Where, queue.Behind)
		w.want(w.look(q, "a2").PartitionKey, "a")
		st, err := q.Stats(w.Context())
		w.ok(err)
		w.want(st.Behind, 2)
		w.ok(got[0].Complete(w.Context()))
		got = w.tryClaim(q, 5)
		w.want(ids(got), "a2")
		_, err = got[0].Fail(w.Context(), nil)
		w.ok(err)
		w.want(ids(w.tryClaim(q, 5)), "")
		w.want(w.claimNext(q).ID(), "a2")
	})
}

func (w *world) claimNext(q *queue.Queue) *queue.Delivery {
	w.Helper()
	b, err := q.Claim(w.Context(), 1)
	w.ok(err)
	if len(b.Deliveries) == 0 {
		w.Fatal("no item")
	}
	return b.Deliveries[0]
}
