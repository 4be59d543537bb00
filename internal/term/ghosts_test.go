package term

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Of the keys on a lease those are removed that belong to no claim and no attempt of the client.
func TestRemoveGhosts(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s, other := w.session(t), w.session(t)
		term := w.hold(t, s, "held", Given{})
		id := int64(s.ID())
		value := func(claim string) string { return protocol.Holder{Claim: claim, Instance: "me"}.Encode() }
		w.Keys.Register("asked")
		keep := []string{layout.Own("held"), layout.Own("asked"), layout.Place("k", "asked"), layout.Own("other"), layout.Note("noted"), s.Sentinel()}
		w.Put(layout.Own("asked"), value("asked"), id)
		w.Put(layout.Place("k", "asked"), value("asked"), id)
		w.Put(layout.Own("other"), value("x"), 0)
		w.Put(layout.Note("noted"), "", id)
		ghosts := []string{layout.Own("ghost"), layout.Note("ghost"), layout.Place("k", "ghost"), layout.Notice("me", "ghost")}
		w.Put(ghosts[0], value("ghost"), id)
		w.Put(ghosts[1], "", id)
		w.Put(ghosts[2], value("ghost"), id)
		w.Put(ghosts[3], "{}", id)
		w.Answer(testlayers.Once(rpctypes.ErrNoLeader), nil)
		w.RemoveGhosts()
		w.RemoveGhosts()
		pass(time.Second)
		for _, name := range keep {
			same(t, name, w.has(name), true)
		}
		for _, name := range ghosts {
			same(t, name, w.has(name), false)
		}
		if term.Err() != nil || other.Ended() || w.Take() != "" {
			t.Error(term.Err())
		}
	})
}

// A key that changed since it was read stays. A role that may not write notes removes the others.
func TestRemoveGhost(t *testing.T) {
	t.Parallel()
	for _, changed := range []bool{false, true} {
		in(t, func(t *testing.T, w *world) {
			s := w.session(t)
			w.Put(layout.Own("k"), protocol.Holder{Claim: "ghost"}.Encode(), int64(s.ID()))
			denied := 0
			w.Answer(func(in *pb.TxnRequest) error {
				if len(in.Compare) == 0 {
					return nil
				}
				if changed && denied == 0 {
					w.Put(layout.Own("k"), "{}", int64(s.ID()))
				}
				if len(in.Success) == 2 {
					denied++
					return rpctypes.ErrPermissionDenied
				}
				return nil
			}, nil)
			w.RemoveGhosts()
			pass(time.Second)
			if w.has(layout.Own("k")) != changed || denied != 1 {
				t.Errorf("changed %v: denied %d times, is there: %v", changed, denied, w.has(layout.Own("k")))
			}
			synctest.Wait()
		})
	}
}
