package line

import (
	"context"
	"testing"
	"time"
)

// A watch that cannot begin though etcd answers other requests takes all watches to another stream. If etcd answers
// nothing, another stream would not help.
func TestAStreamThatHangs(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]bool{"etcd answers": true, "etcd does not answer": false} {
		run(t, name, func(t *testing.T, w *world) {
			w.hangs = func(stream string) bool { return stream == "" }
			turned := w.Store.Generation.Next()
			if answers {
				time.AfterFunc(time.Millisecond, func() { w.Outage.Observe(t.Context(), time.Now(), nil) })
			}
			begun := time.Now()
			news, stop, ok := w.Watches.Begin(t.Context(), "k")
			stop()
			same(t, "begun", ok, false)
			same(t, "after", time.Since(begun), w.Store.Timeout())
			_, open := <-news
			same(t, "ended", open, false)
			select {
			case <-turned:
				same(t, "all begin anew", true, answers)
			default:
				same(t, "all begin anew", false, answers)
			}
			_, stop, ok = w.Watches.Begin(t.Context(), "k")
			stop()
			same(t, "begun on another stream", ok, answers)
		})
	}
}

// So many watches of waiters begin at a time, and no more. A caller that leaves meanwhile has none.
func TestWatchesBeginInTurn(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		for range mostCreations - 1 {
			w.Watches.creations <- struct{}{}
		}
		_, stop := w.Watches.BeginInTurn(t.Context(), "k")
		stop()
		same(t, "its turn is over", len(w.Watches.creations), mostCreations-1)
		w.Watches.creations <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		news, stop := w.Watches.BeginInTurn(ctx, "other")
		stop()
		_, open := <-news
		same(t, "ended", open, false)
		same(t, "after", time.Since(begun), time.Minute)
		same(t, "watched", len(w.watches), 1)
	})
}
