package term

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/protocol"
)

// slowlyClosed is the context of a client that is closed while the process stands still: who asks
// waits for a while.
type slowlyClosed struct {
	context.Context
	while time.Duration
}

func (c slowlyClosed) Err() error {
	time.Sleep(c.while)
	return context.Canceled
}

// A claim that its client refuses, because it is being closed, has no MaxHold: its key would be
// put on another lease, and a loss be reported of a claim that no caller had. The process
// stands still for longer than the MaxHold before it refuses. That takes real time, since locks
// stop a bubble's.
func TestMaxHoldOfAClaimThatIsRefused(t *testing.T) {
	t.Parallel()
	const while = 20 * time.Millisecond
	w := newWorld()
	defer w.End()
	w.Life.Open = slowlyClosed{t.Context(), while}
	if w.Add(w.grant(w.session(t), "k", Given{MaxHold: 1})) != nil {
		t.Fatal("a client that is closed has a new claim")
	}
	time.Sleep(while)
	same(t, "calls", w.Take(), "")
	same(t, "lost", w.Losses[claimerr.MaxHold].Load(), 0)
}

// A term that ends while it is made has left its session and its client. A process can be stopped there for all of the
// MaxHold.
func TestEndsWhileItIsMade(t *testing.T) {
	t.Parallel()
	w := newWorld()
	defer w.End()
	s := w.session(t)
	for range 200 {
		term := w.hold(t, s, "k", Given{MaxHold: 1})
		<-term.Done()
		if !term.IsLost() || s.Size() > 0 || w.Keys.Term("k") != nil {
			t.Fatalf("%v, %d claims in the session, in the client: %v", term.Err(), s.Size(), w.Keys.Term("k") != nil)
		}
	}
}

// There is no term on a session that died, or of a client that is being closed. Its timers do not run.
func TestNotMade(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, g Grant){
		"dead":   func(_ *world, g Grant) { g.Session.Die(claimerr.Loss{Reason: claimerr.Revoked}) },
		"closed": func(w *world, _ Grant) { w.Life.Refuse() },
	} {
		in(t, func(t *testing.T, w *world) {
			s := w.session(t)
			g := w.grant(s, "k", Given{MaxHold: time.Second})
			end(w, g)
			if term := w.Add(g); term != nil || w.Keys.Term("k") != nil || s.Size() > 0 {
				t.Error(name, "made")
			}
			pass(2 * time.Second)
			same(t, name, w.Take(), "")
		})
	}
}

// The context of the work is made when it is needed, has the token and a check, and ends with the term, for its reason.
func TestContext(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.session(t)
		early, late := w.hold(t, s, "k", Given{}), w.hold(t, s, "l", Given{})
		ctx := early.Context()
		if token, ok := fencing.FromContext(ctx); !ok || token != early.Token() || ctx.Err() != nil || early.Context() != ctx {
			t.Error(token, ok, ctx.Err())
		}
		for _, term := range []*Term{early, late} {
			term.Stop(claimerr.Loss{Reason: claimerr.Expired})
			term.Stop(claimerr.Loss{Reason: claimerr.Revoked})
			want := claimerr.Loss{Reason: claimerr.Expired}.Of(term.Token())
			same(t, "cause", context.Cause(term.Context()).Error(), want.Error())
			if term.Err() != nil || term.Check() != nil {
				t.Error("the claim has ended with the context:", term.Err(), term.Check())
			}
		}
		hooked := t.Context()
		if !early.Follow(hooked) || early.Hooked() != hooked {
			t.Error("not followed")
		}
		early.Lose(claimerr.Loss{Reason: claimerr.Revoked})
		if early.Follow(hooked) {
			t.Error("followed after its end")
		}
	})
}

// The states in which etcd can have a claim. What another has taken is lost. What may still have a handler stays held for
// a while.
func TestFound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state protocol.State
		lost  string // for which reason
		key   string // who has it then; "mine"
	}{
		{protocol.Kept, "", "mine"},
		{protocol.Deleted, "deleted", "mine"},
		{protocol.Replaced, "superseded", "mine"},
		{protocol.EpochRaised, "superseded", protocol.KindZombie},
		{protocol.RecordDeleted, "deleted", protocol.KindZombie},
		{protocol.RecordReplaced, "superseded", protocol.KindZombie},
	} {
		in(t, func(t *testing.T, w *world) {
			term := w.hold(t, w.session(t), "k", Given{})
			kept := term.Found(tt.state)
			synctest.Wait()
			who, want := w.owner("k"), tt.key
			if want == "mine" {
				want = term.ID
			}
			calls := ""
			if tt.lost != "" {
				calls = "lost k: " + tt.lost
			}
			if kept != (tt.lost == "") || w.Take() != calls || who != want || term.IsLost() == kept {
				t.Errorf("state %d: kept %v, owner %q, %v", tt.state, kept, who, term.Err())
			}
			if term.Found(tt.state) != kept || w.Take() != "" {
				t.Errorf("state %d: found twice", tt.state)
			}
		})
	}
}
