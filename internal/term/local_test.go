package term

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// got names what a local waiter was sent: the key, or to the line in etcd.
func got(f *LocalWaiter) string {
	select {
	case term := <-f.Done:
		switch {
		case term == nil:
			return "line"
		case term.Key == f.Attempt.Claim().Mode.Keys().Claim && term.ID == f.Attempt.Claim().ID && term.IsHeld():
			return "key"
		}
		return "another term"
	default:
		return "waits"
	}
}

// place puts a place in the line in etcd, which some client waits in.
func (w *world) place(t *Term, id string) {
	value := protocol.Holder{Claim: id, Owner: "o", Instance: "other"}.Encode()
	w.Put(layout.Place(t.Key, id), value, int64(t.s.ID()))
}

// To whom a release hands the key, of two callers that wait within the client, and the line in etcd.
func TestHandOff(t *testing.T) {
	t.Parallel()
	const free = ""
	for _, tt := range []struct {
		name          string
		do            func(w *world, t *Term, first, second *LocalWaiter)
		first, second string
		owner         string // "first", "second", "own", or ""
		returns       error
	}{
		{"both wait", func(*world, *Term, *LocalWaiter, *LocalWaiter) {}, "key", "waits", "first", nil},
		{"the first has left", func(w *world, _ *Term, f, _ *LocalWaiter) { w.Local.Leave(f) }, "waits", "key", "second", nil},
		{"both have left", func(w *world, _ *Term, f, g *LocalWaiter) { w.Local.Leave(f); w.Local.Leave(g) }, "waits", "waits", free, nil},
		{"reply lost", func(w *world, _ *Term, _, _ *LocalWaiter) { w.Answer(nil, testlayers.Once(txn.ErrNoAnswer)) }, "key", "waits", "first", nil},
		{"request lost", func(w *world, _ *Term, _, _ *LocalWaiter) { w.Answer(testlayers.Once(txn.ErrNoAnswer), nil) }, "key", "waits", "first", nil},
		{"no leader for a moment", func(w *world, _ *Term, _, _ *LocalWaiter) { w.Answer(testlayers.Once(rpctypes.ErrNoLeader), nil) }, "key", "waits", "first", nil},
		{"refused", func(w *world, _ *Term, _, _ *LocalWaiter) { w.Answer(testlayers.Once(rpctypes.ErrNoSpace), nil) }, "line", "line", free, nil},
		{"lost meanwhile", func(w *world, _ *Term, _, _ *LocalWaiter) { w.Remove(layout.Own("k")) }, "line", "line", free, claimerr.ErrLost},
		{"a place in line of another client", func(w *world, t *Term, _, _ *LocalWaiter) {
			w.place(t, "x")
		}, "line", "line", "x", nil},
		{"a place that was taken after they came", func(w *world, t *Term, f, g *LocalWaiter) {
			w.Local.RecordArrival([]*LocalWaiter{f, g}, 100)
			w.place(t, "x")
		}, "key", "waits", "first", nil},
		{"a place that was taken after the first alone", func(w *world, t *Term, f, _ *LocalWaiter) {
			w.Local.Leave(f)
			w.Local.RecordArrival([]*LocalWaiter{f}, 100)
			w.place(t, "x")
		}, "waits", "line", "x", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in(t, func(t *testing.T, w *world) {
				term := w.hold(t, w.session(t), "k", Given{})
				first, second := w.behind(term), w.behind(term)
				tt.do(w, term, first, second)
				err := term.Release(t.Context())
				w.Answer(nil, nil)
				pass(time.Second)
				owners := map[string]string{first.Attempt.Claim().ID: "first", second.Attempt.Claim().ID: "second", term.ID: "own"}
				owner := w.owner("k")
				if name, ok := owners[owner]; ok {
					owner = name
				}
				if f, g := got(first), got(second); f != tt.first || g != tt.second || owner != tt.owner || !errors.Is(err, tt.returns) {
					t.Errorf("first %s, second %s, owner %q, %v", f, g, owner, err)
				}
				if term.Err() == nil || (w.Keys.Term("k") != nil) != (tt.first == "key" || tt.second == "key") {
					t.Errorf("ended: %v", term.Err())
				}
			})
		})
	}
}

// A claim is handed on under the epoch that its term is under, whatever the waiter knew.
func TestHandOffUnderEpoch(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.session(t)
		w.raise()
		if err := w.Store.ReadEpoch(t.Context()); err != nil {
			t.Fatal(err)
		}
		term := w.hold(t, s, "k", Given{})
		f := w.behind(term)
		f.Attempt.(*next).try.Epoch = &txn.Epoch{}
		if err := term.Release(t.Context()); err != nil {
			t.Error(err)
		}
		next := <-f.Done
		if next.epoch() != 1 || next.EpochRev != term.EpochRev || next.Fence <= term.Fence || next.Check() != nil {
			t.Errorf("epoch %d of %d, fence %d after %d, %v", next.epoch(), next.EpochRev, next.Fence, term.Fence, next.Check())
		}
		if _, err := w.Verify(t.Context(), s, everything); err != nil || next.Err() != nil {
			t.Error(err, next.Err())
		}
	})
}

// Those behind the first wait behind its claim, in their order. Each gets the key in its turn.
func TestHandOffInOrder(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.session(t)
		term := w.hold(t, s, "k", Given{})
		all := []*LocalWaiter{w.behind(term), w.behind(term), w.behind(term)}
		fence := term.Fence
		for i, f := range all {
			if err := term.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if term = <-f.Done; term.ID != f.Attempt.Claim().ID || term.Fence <= fence || w.Keys.Term("k") != term {
				t.Fatalf("%d: claim %s, fence %d after %d", i, term.ID, term.Fence, fence)
			}
			fence = term.Fence
		}
		if err := term.Release(t.Context()); err != nil || w.owner("k") != "" || s.Size() != 0 {
			t.Errorf("%v, owner %q, %d claims", err, w.owner("k"), s.Size())
		}
	})
}

// A key that was handed to a caller who leaves at that moment is handed on. Its place in the session is given back.
func TestHandOffToOneThatLeaves(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.session(t)
		term := w.hold(t, s, "k", Given{})
		first, second := w.behind(term), w.behind(term)
		w.Answer(nil, func(in *pb.TxnRequest) error {
			w.Answer(nil, nil)
			if !w.Local.Leave(first) {
				t.Error("it has the key")
			}
			s.Unreserve() // as its caller does
			return nil
		})
		if err := term.Release(t.Context()); err != nil {
			t.Error(err)
		}
		pass(time.Second)
		same(t, "first", got(first), "waits")
		same(t, "owner", w.owner("k"), second.Attempt.Claim().ID)
		same(t, "second", got(second), "key")
		same(t, "claims", s.Size(), 1)
		if err := w.Keys.Term("k").Release(t.Context()); err != nil {
			t.Error(err)
		}
		pass(time.Second)
		same(t, "ended with a place that is reserved", s.Ended(), false)
		s.Unreserve()
		pass(time.Second)
		same(t, "ended when all places were given back", s.Ended(), true)
	})
}

// A key that was handed over while the session died, or the client was closed, is no claim. The attempt is undone, and its
// caller goes the usual way.
func TestHandOffMeanwhile(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, t *Term){
		"dead":   func(_ *world, t *Term) { t.s.Die(claimerr.Loss{Reason: claimerr.Revoked}) },
		"closed": func(w *world, _ *Term) { w.Life.Refuse() },
	} {
		in(t, func(t *testing.T, w *world) {
			term := w.hold(t, w.session(t), "k", Given{})
			f := w.behind(term)
			w.Answer(nil, func(*pb.TxnRequest) error { end(w, term); return nil })
			_ = term.Release(t.Context())
			pass(time.Second)
			if !f.Attempt.(*next).undone.Load() || w.Keys.Term("k") != nil || got(f) != "line" {
				t.Errorf("%s: undone %v", name, f.Attempt.(*next).undone.Load())
			}
		})
	}
}

// A hand-over whose outcome stays unknown ends the term, and what it may have put. Its waiters go to the line in etcd.
func TestHandOffUnknown(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		term := w.hold(t, w.session(t), "k", Given{})
		first, second := w.behind(term), w.behind(term)
		var late *pb.TxnRequest
		w.Answer(func(in *pb.TxnRequest) error { late = in; return txn.ErrNoAnswer }, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := term.Release(ctx); !errors.Is(err, txn.ErrUnknown) {
			t.Error(err)
		}
		same(t, "first", got(first), "line")
		same(t, "second", got(second), "line")
		same(t, "check", verdict(term.Check()) != "nil", true)
		w.Etcd.With(func(m *memetcd.Model) { m.Do(late) })
		w.Answer(nil, nil)
		pass(3 * time.Second)
		same(t, "owner", w.owner("k"), "")
		same(t, "session ended", term.s.Ended(), false)
	})
}

// The name of a shared claim is free again once etcd has answered that its key is gone, and not before.
func TestFreed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do   func(w *world)
		want int
	}{
		"released":   {func(*world) {}, 1},
		"reply lost": {func(w *world) { w.Answer(nil, testlayers.Once(txn.ErrNoAnswer)) }, 1},
		"unanswered": {func(w *world) { w.Answer(func(*pb.TxnRequest) error { return txn.ErrNoAnswer }, nil) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, func(t *testing.T, w *world) {
				s := w.session(t)
				s.Again()
				g, freed := w.grant(s, "k", Given{}), 0
				g.Freed = func() {
					freed++
					same(t, "key in etcd", w.has(layout.Own("k")), false)
					same(t, "ended", w.Keys.Term("k") == nil, true)
				}
				term := w.Add(g)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				tt.do(w)
				_ = term.Release(ctx)
				same(t, "freed", freed, tt.want)
				w.Answer(nil, nil)
			})
		})
	}
}
