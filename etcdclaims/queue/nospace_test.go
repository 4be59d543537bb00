package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Beyond its quota etcd refuses what could put a key. Each call returns that at once. It also matches
// ErrUnknown where the same reply can be that of a request that etcd has carried out.
func TestNoSpaceOfEachCall(t *testing.T) {
	const works, refused, unsure = "carried out", "refused", "refused, but perhaps carried out"
	virtually(t, func(w *world) {
		q := w.queue(queue.Config{TTL: time.Minute, SpaceReserve: -1})
		for _, id := range []string{"dead", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
			w.enqueue(q, id)
		}
		w.ok(w.claim(q).Discard(w.Context(), "x"))
		held := w.tryClaim(q, 7)
		adopted, err := q.Adopt(w.Context(), held[5].Handle())
		w.ok(err)
		w.ok(held[6].SetResult([]byte("r")))
		w.server.FillQuota(w.T)
		ctx := w.Context()
		fresh := w.queue(queue.Config{TTL: time.Minute})
		for _, c := range []struct {
			name string
			want string
			call func() error
		}{
			{"enqueue", unsure, func() error { _, err := q.Enqueue(ctx, queue.NewItem(nil)); return err }},
			{"claim", unsure, func() error { _, err := q.TryClaim(ctx, 1); return err }},
			{"fail", refused, func() error { _, err := held[0].Fail(ctx, errors.New("x")); return err }},
			{"snooze", refused, func() error { _, err := held[0].Snooze(ctx, sec); return err }},
			{"release", refused, func() error { return held[0].Release(ctx) }},
			{"discard", refused, func() error { return held[0].Discard(ctx, "x") }},
			{"heartbeat", works, func() error { _, err := held[0].Heartbeat(ctx, 0); return err }},
			{"heartbeat with another duration", refused, func() error { _, err := held[0].Heartbeat(ctx, 2*time.Minute); return err }},
			{"complete", works, func() error { return held[1].Complete(ctx) }},
			{"complete an adopted lease", refused, func() error { return adopted.Complete(ctx) }},
			{"complete with a result", refused, func() error { return held[6].Complete(ctx) }},
			{"cancel", works, func() error { return q.Cancel(ctx, "i") }},
			{"cancel a taken item", refused, func() error { return q.Cancel(ctx, held[0].ID(), queue.AlsoTaken("")) }},
			{"set priority", unsure, func() error { return q.SetPriority(ctx, "h", 3) }},
			{"redrive", unsure, func() error { return q.Redrive(ctx, "dead") }},
			{"redrive all", unsure, func() error { _, err := q.RedriveAll(ctx); return err }},
			{"pause", unsure, func() error { return q.Pause(ctx, "x") }},
			{"resume", unsure, func() error { return q.Resume(ctx) }},
			{"sweep", works, func() error { _, err := q.Sweep(ctx); return err }},
			{"purge", works, func() error { _, err := q.Purge(ctx, time.Now().Add(time.Hour)); return err }},
			{"look", works, func() error { _, err := q.Look(ctx, "h"); return err }},
			{"without a session: cancel", refused, func() error { return fresh.Cancel(ctx, "h") }},
			{"without a session: purge", refused, func() error { _, err := fresh.Purge(ctx, time.Now().Add(time.Hour)); return err }},
			{"without a session: sweep", refused, func() error { _, err := fresh.Sweep(ctx); return err }},
			{"close", unsure, func() error { return q.Close(ctx) }},
		} {
			begin := time.Now()
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(w.Context(), 20*sec)
			err := c.call()
			cancel()
			if d := time.Since(begin); d > sec {
				t.Errorf("%s: returned after %v", c.name, d)
			}
			noSpace, unknown := errors.Is(err, rpctypes.ErrNoSpace), errors.Is(err, etcdclaims.ErrUnknown)
			if noSpace != (c.want != works) || unknown != (c.want == unsure) || !noSpace && err != nil {
				t.Errorf("%s: %v, want that it is: %s", c.name, err, c.want)
			}
		}
		w.server.FreeQuota(w.T)
	})
}
