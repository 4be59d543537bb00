package queue_test

import (
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// A queue is opened as it was configured, and only if it exists; opening changes
// nothing.
func TestOpen(t *testing.T) {
	virtually(t, func(w *world) {
		claims := claimtest.NewClient(w.T, w.server.Host(w.T), etcdclaims.Config{TTL: ttl})
		_, err := queue.Open(w.Context(), claims, "q")
		w.wantErr(err, queue.ErrNotFound)
		_, err = queue.Open(w.Context(), claims, "a/b")
		w.wantErr(err, etcdclaims.ErrInvalidKey)
		w.want(len(w.under("")), 0)

		made := w.queue(queue.Config{HigherFirst: true, MaxTaken: 2, MaxWaiting: 5})
		w.enqueue(made, "a", queue.Priority(1))
		w.enqueue(made, "b", queue.Priority(2))
		before := len(w.under(""))
		q, err := queue.Open(w.Context(), claims, "q")
		w.ok(err)
		w.want(len(w.under("")), before)
		cfg := q.Config()
		w.want(cfg.HigherFirst && cfg.MaxTaken == 2 && cfg.MaxWaiting == 5 && cfg.TTL == 30*sec, true)
		w.want(ids(w.tryClaim(q, 1)), "b")
		w.ok(q.Close(w.Context()))

		for _, value := range []string{`{"v":2,"name":"q"}`, "junk", `{"v":1,"name":"another"}`} {
			_, err := w.server.Admin().Put(w.Context(), w.under("/spec")[0], value)
			w.ok(err)
			if _, err := queue.Open(w.Context(), claims, "q"); err == nil {
				t.Errorf("opened by %s", value)
			}
		}
	})
}
