package term

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/protocol"
)

// A MaxHold stops the work a drain before it ends the claim. The key stays held, since a handler may go on. Time for which
// the machine slept counts, once it is noticed.
func TestMaxHold(t *testing.T) {
	t.Parallel()
	for _, slept := range []time.Duration{0, 3 * time.Second} {
		in(t, func(t *testing.T, w *world) {
			term := w.hold(t, w.session(t), "k", Given{MaxHold: 10 * time.Second})
			w.Slept.Store(int64(slept))
			term.Woke(w.Clock.Now())
			work := term.Context()
			pass(5*time.Second - slept - 1)
			same(t, "stopped before", work.Err() != nil, false)
			pass(2)
			same(t, "stopped", work.Err() != nil, true)
			pass(5*time.Second - 2)
			same(t, "lost before", w.Take(), "")
			pass(2)
			same(t, "lost", w.Take(), "lost k: held for its maximum")
			same(t, "owner", w.owner("k"), protocol.KindZombie)
		})
	}
	in(t, func(t *testing.T, w *world) { // Check notices a sleep before the pulse does
		term := w.hold(t, w.session(t), "k", Given{MaxHold: 10 * time.Second})
		w.Slept.Store(int64(10 * time.Second))
		if _, err := term.CheckSure(); !errors.Is(err, claimerr.ErrLost) {
			t.Error(err)
		}
		synctest.Wait()
		same(t, "owner", w.owner("k"), protocol.KindZombie)
	})
}

// A beat moves the end of a Progress, and that of a MaxHold not. Beats of different goroutines may come at any time.
func TestProgress(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		term := w.hold(t, w.session(t), "k", Given{Progress: time.Second, MaxHold: time.Minute})
		work := term.Context()
		for range 4 {
			pass(time.Second / 2)
			if err := term.Beat(); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Second - 1)
		same(t, "stopped before", work.Err() != nil, false)
		pass(2)
		same(t, "stopped", work.Err() != nil, true)
		same(t, "too late", errors.Is(term.Beat(), claimerr.ErrLost), true)
		pass(5*time.Second - 2) // the drain
		same(t, "lost before", w.Take(), "")
		pass(2)
		same(t, "lost", w.Take(), "lost k: its handler made no progress")
		same(t, "owner", w.owner("k"), protocol.KindZombie)
	})
	in(t, func(t *testing.T, w *world) { // what comes while it is being given up counts if that comes to nothing
		term := w.hold(t, w.session(t), "k", Given{Progress: time.Second})
		if err := term.begin(); err != nil {
			t.Fatal(err)
		}
		pass(7 * time.Second)
		same(t, "lost while it is given up", w.Take(), "")
		term.stay(t.Context())
		synctest.Wait()
		same(t, "lost", w.Take(), "lost k: its handler made no progress")
	})
}

// A term that ends while it is given up leaves no timer.
func TestLimitOfATermThatHasEnded(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		term := w.hold(t, w.session(t), "k", Given{Progress: time.Hour})
		if err := term.begin(); err != nil {
			t.Fatal(err)
		}
		term.Lose(claimerr.Loss{Reason: claimerr.Expired})
		term.stay(t.Context())
		if term.limits[0].timer.Stop() {
			t.Error("its timer runs")
		}
	})
}
