package term

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/lease"
)

// A term is not shared when its work is to end.
func TestShareable(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, t *Term){
		"stopped":   func(_ *world, t *Term) { t.Stop(claimerr.Loss{Reason: claimerr.Expired}) },
		"ending":    func(_ *world, t *Term) { _ = t.begin() },
		"lost":      func(_ *world, t *Term) { t.Lose(claimerr.Loss{Reason: claimerr.Revoked}) },
		"not fresh": func(w *world, t *Term) { w.Slept.Store(int64(t.s.Grant().Soft)) },
	} {
		in(t, func(t *testing.T, w *world) {
			term := w.hold(t, w.session(t), "k", Given{})
			term.Begin()
			same(t, "before", w.Shareable("k"), true)
			end(w, term)
			if w.Shareable("k") || w.Terms.Share("k") != nil || term.life.refs != 1 {
				t.Error("shared when", name)
			}
		})
	}
}

// The claim that a cleanup gives up is no ghost until that is done.
func TestCleanUp(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		hold := make(chan struct{})
		w.CleanUp("claim", &lease.Cleanup{
			Of: w.session(t), Over: func() { w.Note(fmt.Sprint("over, under way ", w.Keys.IsUnderWay("claim"))) },
			Do: func(context.Context) error { <-hold; return nil },
		})
		synctest.Wait()
		same(t, "under way", w.Keys.IsUnderWay("claim"), true)
		close(hold)
		synctest.Wait()
		same(t, "under way after it", w.Keys.IsUnderWay("claim"), false)
		same(t, "calls", w.Take(), "over, under way true")
	})
}
