package queue_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const queueRoot = "/etcdclaims/queue/"

// deleteKeys deletes all keys of the queue that contain one of the parts, but not the claims of its
// sessions, one after the other.
func (w *world) deleteKeys(parts ...string) {
	w.Helper()
	for _, key := range w.under("") {
		if slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(key, part) }) {
			w.server.Delete(w.T, key)
		}
	}
}

// deletions are ways in which an operator deletes the keys of an item that a worker has.
var deletions = map[string]func(w *world){
	"one after the other": func(w *world) { w.deleteKeys("") },
	"all at once": func(w *world) {
		_, err := w.server.Admin().Delete(context.Background(), queueRoot, clientv3.WithPrefix())
		w.ok(err)
	},
	"the taken key":               func(w *world) { w.deleteKeys("/taken/") },
	"the content, then the taken": func(w *world) { w.deleteKeys("/content/", "/taken/") },
}

// A verb whose item was deleted by hand changes nothing, and its error says that the lease was lost,
// also if an earlier request of the verb may have been carried out.
func TestDeletedUnderWorker(t *testing.T) {
	for name, remove := range deletions {
		for _, lost := range []bool{false, true} {
			for _, id := range []string{"given", ""} {
				t.Run(strings.Join([]string{name, map[bool]string{true: "request lost"}[lost], id}, "/"), func(t *testing.T) {
					virtually(t, func(w *world) {
						q, host := w.process(queue.Config{})
						opts := []queue.ItemOption{queue.ID(id)}
						if id == "" {
							opts = nil
						}
						_, err := q.Enqueue(w.Context(), queue.NewItem(nil, opts...))
						w.ok(err)
						l := w.claim(q)
						if lost {
							host.Inject(claimtest.Fault{On: claimtest.Other, LoseRequest: true})
							time.AfterFunc(sec, func() { remove(w) })
						} else {
							remove(w)
						}
						err = l.Complete(w.Context(), clientv3.OpPut("/result", "x"))
						w.wantErr(err, etcdclaims.ErrLost)
						if errors.Is(err, etcdclaims.ErrReleased) {
							t.Errorf("got %v, and no verb ended the lease", err)
						}
						resp, err := w.server.Admin().Get(w.Context(), "/result")
						w.ok(err)
						w.want(resp.Count, int64(0))
					})
				})
			}
		}
	}
}

// The spec of a queue that is deleted by hand is put back by the processes that know it, and by those
// that learn it from them. No process claims or enqueues in another order or with other bounds.
func TestSpecDeleted(t *testing.T) {
	cfg := queue.Config{MaxTaken: 1, HigherFirst: true}
	refused := func(w *world, q *queue.Queue) {
		w.Helper()
		_, err := q.TryClaim(w.Context(), 1)
		w.wantErr(err, queue.ErrConfig)
		_, err = q.Enqueue(w.Context(), queue.NewItem(nil))
		w.wantErr(err, queue.ErrConfig)
	}
	opened := func(w *world) {
		w.Helper()
		q, err := queue.Open(w.Context(), claimtest.NewClient(w.T, w.server.Host(w.T), etcdclaims.Config{}), "q")
		w.ok(err)
		w.want(q.Config().MaxTaken, 1)
		w.want(q.Config().HigherFirst, true)
	}
	t.Run("it alone", func(t *testing.T) {
		virtually(t, func(w *world) {
			q := w.queue(cfg)
			w.enqueue(q, "a")
			l := w.claim(q)
			w.deleteKeys("/spec")
			opened(w)
			refused(w, w.queue(queue.Config{}))
			w.want(len(w.under("/spec")), 1)
			w.ok(l.Complete(w.Context()))
			w.enqueue(q, "b")
			w.want(w.claim(q).ID(), "b")
		})
	})
	t.Run("by its keeper", func(t *testing.T) {
		virtually(t, func(w *world) {
			q := w.queue(cfg)
			w.want(len(w.tryClaim(q, 1)), 0) // keeps house from now on
			time.Sleep(sec)
			w.deleteKeys("/spec")
			time.Sleep(ttl)
			w.want(len(w.under("/spec")), 1)
			opened(w)
		})
	})
	t.Run("with all other keys", func(t *testing.T) {
		virtually(t, func(w *world) {
			q := w.queue(cfg)
			w.enqueue(q, "a")
			w.claim(q)
			w.deleteKeys("")
			w.enqueue(q, "b")
			refused(w, w.queue(queue.Config{}))
			opened(w)
			w.want(w.claim(q).ID(), "b")
		})
	})
	t.Run("and made anew by another", func(t *testing.T) {
		virtually(t, func(w *world) {
			q, host := w.process(cfg)
			w.enqueue(q, "a")
			w.claim(q)
			host.Cut() // else its keeper may be first
			w.deleteKeys("")
			other := w.queue(queue.Config{})
			w.enqueue(other, "b")
			host.Heal()
			refused(w, q)
			w.want(w.claim(other).ID(), "b")
		})
	})
	t.Run("while a process is idle", func(t *testing.T) {
		virtually(t, func(w *world) {
			q := w.queue(cfg)
			w.enqueue(q, "a")
			time.Sleep(3 * time.Minute) // its session ends
			w.want(len(w.under("/worker/")), 0)
			w.deleteKeys("")
			w.enqueue(w.queue(queue.Config{}), "b")
			refused(w, q)
		})
	})
}
