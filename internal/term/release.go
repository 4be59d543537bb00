package term

import (
	"context"
	"errors"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
)

// Release gives the term up for one of its handles, and the key with the last.
func (t *Term) Release(ctx context.Context) error {
	t.mu.Lock()
	if t.life.refs > 1 && t.life.phase != phaseEnded {
		t.life.refs--
		t.mu.Unlock()
		return nil
	}
	err := t.beginOrWantLocked() // together with the handles: no other caller may share it from now on
	t.mu.Unlock()
	if errors.Is(err, claimerr.ErrReleased) {
		return nil
	}
	if err != nil {
		return err
	}
	return t.releaseBegun(ctx)
}

// releaseBegun gives up a term that is given up for good already, as Check sees it.
func (t *Term) releaseBegun(ctx context.Context) error {
	if t.restLeft() > 0 {
		return t.rest(ctx)
	}
	// The metadata of a caller, such as credentials, is sent with no request that is made after its call.
	if t.Lazy && txn.MetadataOf(ctx).Name == "" && t.unawaited() {
		t.part()
		return nil
	}
	err := t.drop(ctx)
	t.terms.countRelease(err)
	return err
}

// release is the exit that gives the key up to the next in line.
func (t *Term) release() exit {
	return exit{t: t, call: "release", Ending: protocol.Ending{Release: t.leaving(), Line: t.line}}
}

// drop gives the key up to the next in line, first to those of this client.
func (t *Term) drop(ctx context.Context) error {
	ts := t.terms
	if keys := t.Mode.Keys(); keys.Slots > 0 { // else all releases of its client aim at the same place in line
		defer ts.Local.AskInTurn(ctx, t.s.Dead(), keys.Line)()
	}
	x := t.release()
	if x.local = t.nextLocal(); x.local != nil {
		x.Local = x.local.Attempt.Claim()
		ts.Keys.Register(x.Local.ID) // whether or not its caller waits for it
		defer ts.Keys.Unregister(x.Local.ID)
	}
	return x.run(ctx)
}

// delete frees the key, for a cleanup.
func (t *Term) delete(ctx context.Context) error {
	x := t.release()
	x.Step(protocol.EndEvent{Kind: protocol.EndLeft})
	return x.goOn(ctx)
}

// HandTo lets the release of the term hand the key to a caller of another client, by its instance, if one is in line.
func (t *Term) HandTo(instance string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heir = instance
}

// leaving is the step that gives the term up.
func (t *Term) leaving() protocol.Release {
	t.mu.Lock()
	noted, heir := t.note.sent, t.heir
	t.mu.Unlock()
	alone := t.Mode.Guard(t.Fence).Unchanged && t.terms.Keys.RecordBy(t.Mode.Keys().User) <= 1
	return protocol.Release{
		Held: &t.Held, Noted: noted, Noticed: t.Noticed, Alone: alone, Prefers: t.Prefers || heir != "", Heir: heir,
	}
}

// clearAway deletes the term's handoff notice and its note in the background:
// if another request than its own has ended the term, they are still there.
func (t *Term) clearAway() {
	t.mu.Lock()
	last := t.note.rev
	t.mu.Unlock()
	r, some := t.leaving().ClearAway(last)
	if !some {
		return
	}
	t.s.CleanUp("clearing away what a claim has left", func(ctx context.Context) error {
		_, err := t.terms.Store.Do(ctx, r)
		return err
	})
}
