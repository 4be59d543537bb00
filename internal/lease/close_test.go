package lease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/memetcd"
)

// End revokes the leases that carry nothing which is needed, after the claims have ended. The others lapse.
func TestEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		claims, fails bool
		pending       bool
		cancelled     bool
		want, lives   bool
	}{
		{name: "empty", want: true},
		{name: "with claims", claims: true, lives: true},
		{name: "with a cleanup", pending: true, lives: true},
		{name: "when there is no time", cancelled: true, lives: true},
		{name: "not answered", fails: true, lives: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in(t, func(t *testing.T, w *world) {
				s, empty := w.open(t, false), w.open(t, true)
				hold := make(chan struct{})
				defer close(hold)
				if tt.claims {
					w.add(t, s, "a")
				}
				if tt.pending {
					s.CleanUp("moving a key", func(context.Context) error { <-hold; return nil })
				}
				if tt.fails {
					w.fails(memetcd.Revoke, errAway)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancelled {
					cancel()
				}
				w.Life.Refuse()
				got := w.Pool.End(ctx)
				if got != tt.want || w.Etcd.Lives(s.ID()) != tt.lives || w.Etcd.Lives(empty.ID()) != (tt.fails || tt.cancelled) {
					t.Errorf("all revoked %v, lives %v, the other %v", got, w.Etcd.Lives(s.ID()), w.Etcd.Lives(empty.ID()))
				}
				if !s.Ended() || !empty.Ended() || len(w.Live()) > 0 {
					t.Error("a session has not ended")
				}
				if tt.claims {
					same(t, "claims", w.news.Take(), "lose a: shut down, lost a: shut down (dead)")
				}
			})
		})
	}
}

// Quiet waits for all that is under way, or for the end of its context.
func TestQuiet(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		begun := time.Now()
		quiet := func() time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			begun = time.Now()
			w.Quiet(ctx)
			return time.Since(begun)
		}
		same(t, "without sessions", quiet(), 0)
		granted := w.hangs(memetcd.Grant)
		time.AfterFunc(time.Second, func() { w.answers(nil); close(granted) })
		ctx, leave := context.WithCancel(t.Context())
		go func() { _, _ = w.Session(ctx, ttl, false) }()
		synctest.Wait()
		leave() // a caller that stays has its place only after the grant, which a client that is closed refuses
		if d := quiet(); d < time.Second || d > time.Second+10*time.Millisecond {
			t.Errorf("with a grant: %v", d)
		}
		time.AfterFunc(time.Second, w.open(t, false).Unreserve)
		if d := quiet(); d < time.Second || d > time.Second+10*time.Millisecond {
			t.Errorf("with a caller: %v", d)
		}
		s := w.open(t, false)
		m := w.add(t, s, "a")[0]
		s.Unreserve()
		s.CleanUp("for a while", func(context.Context) error { time.Sleep(3 * time.Second); return nil })
		time.AfterFunc(time.Second, func() { s.Remove(m) })
		if d := quiet(); d < 3*time.Second || d > 3*time.Second+10*time.Millisecond {
			t.Errorf("with a claim and a cleanup: %v", d)
		}
		s.Again()
		same(t, "with an acquisition", quiet(), time.Minute)
	})
}
