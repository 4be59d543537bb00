package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// overwrite puts a value in place of a taken item's, as a newer version of this program
// or somebody's etcdctl might. It returns the key.
func (w *world) overwrite(id, value string) string {
	w.Helper()
	for _, key := range w.under("/taken/") {
		if strings.HasSuffix(key, "/"+id) {
			_, err := w.server.Admin().Put(w.Context(), key, value)
			w.ok(err)
			return key
		}
	}
	w.Fatalf("%s is not taken", id)
	return ""
}

// A taken value that cannot be read costs no slot and no session when its worker is
// gone: it is found among the dead letters as it is, and purged with its content.
func TestUnreadableTaken(t *testing.T) {
	const newer = `{"v":2,"id":"a/b","seq":"x"}`
	for _, how := range []string{"died", "closed", "moved"} {
		for _, value := range []string{newer, "not JSON", ""} {
			t.Run(fmt.Sprintf("%s/%s", how, value), func(t *testing.T) {
				t.Parallel()
				virtually(t, func(w *world) {
					cfg := queue.Config{MaxTaken: 1}
					victim, host := w.process(cfg)
					q := w.queue(cfg)
					w.enqueue(q, "a/b", queue.Priority(0))
					l := w.claim(victim)
					if how == "moved" {
						_, err := l.Heartbeat(w.Context(), time.Minute)
						w.ok(err)
					}
					w.overwrite("a/b", value)
					w.enqueue(q, "next")
					if how == "closed" {
						w.ok(victim.Close(w.Context()))
					} else {
						w.want(len(w.tryClaim(q, 1)), 0) // keeps house from now on
						host.Kill()
						time.Sleep(time.Minute + 2*sec)
					}
					w.wantErr(l.Complete(w.Context()), queue.ErrExpired)
					w.want(ids(w.tryClaim(q, 5)), "next")
					w.want(len(w.under("/worker/")), 1)
					dead := w.under("/dead/")
					w.want(len(dead), 1)
					resp, err := w.server.Admin().Get(w.Context(), dead[0])
					w.ok(err)
					w.want(string(resp.Kvs[0].Value), value)
					if _, err := q.Look(w.Context(), "a/b"); err == nil || !strings.Contains(err.Error(), "dead/") {
						t.Errorf("look at it: %v", err)
					}
					n, err := q.Purge(w.Context(), time.Now().Add(sec))
					w.ok(err)
					w.want(n, 1)
					w.want(len(w.under("a/b")), 0)
					w.enqueue(q, "a/b")
				})
			})
		}
	}
}

// A worker whose taken value was overwritten is refused, and the slot is free again
// though its process lives on.
func TestOverwrittenTaken(t *testing.T) {
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{MaxTaken: 1})
		w.enqueue(q, "a", queue.Priority(0))
		w.enqueue(q, "next")
		l := w.claim(q)
		w.overwrite("a", `{"v":2}`)
		w.wantErr(l.Complete(w.Context()), queue.ErrSuperseded)
		b, err := q.Claim(w.Context(), 1)
		w.ok(err)
		w.want(ids(b.Deliveries), "next")
		w.want(len(w.under("/taken/")), 1)
		w.want(len(w.under("/dead/")), 1)
	})
}

// What is below taken/ without a session does not keep the queue from being empty: an
// item whose session's entry somebody removed waits again when the session is over, and
// a key that names no session is removed. Items of sessions that live stay where they
// are, also if such a key begins like theirs.
func TestStrayTaken(t *testing.T) {
	virtually(t, func(w *world) {
		victim, host := w.process(queue.Config{})
		q := w.queue(queue.Config{})
		for _, id := range []string{"a", "b"} {
			w.enqueue(q, id)
		}
		l := w.claim(victim)
		mine := w.claim(q)
		for _, key := range w.under("/worker/") {
			_, err := w.server.Admin().Delete(w.Context(), key)
			w.ok(err)
		}
		keys := w.under("/taken/")
		w.want(len(keys), 2)
		for _, key := range keys {
			session := key[:strings.LastIndex(key, "/")]
			for _, junk := range []string{session, session[:len(session)-1], session + "-"} {
				_, err := w.server.Admin().Put(w.Context(), junk, "junk")
				w.ok(err)
			}
		}
		host.Kill()
		time.Sleep(2 * time.Minute)
		w.ok(mine.Check())
		w.want(len(w.under("/taken/")), 1)
		w.wantErr(l.Complete(w.Context()), etcdclaims.ErrLost)
		again := w.claim(q)
		w.want(again.ID(), l.ID())
		w.want(again.Attempt(), 2)
		w.ok(again.Complete(w.Context()))
		w.ok(mine.Complete(w.Context()))
		time.Sleep(3 * time.Minute)
		w.want(len(w.under("/active/")), 0)
	})
}
