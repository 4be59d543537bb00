package queue_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// Callers that want as many items as there are, several at once, get them.
func TestClaimAll(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{})
		got := make(chan int, 3)
		var wg sync.WaitGroup
		for range cap(got) {
			wg.Go(func() {
				b, err := q.Claim(w.Context(), math.MaxInt)
				if err != nil {
					w.Error(err)
				}
				got <- len(b.Leases)
			})
		}
		time.Sleep(sec)
		for _, id := range []string{"a", "b", "c"} {
			w.enqueue(q, id)
			time.Sleep(sec)
		}
		wg.Wait()
		w.want(<-got+<-got+<-got, 3)
	})
}
