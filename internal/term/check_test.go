package term

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// The wall clock alone makes Check refuse and ask for a renewal, but ends nothing. What carries its guard to etcd goes by
// the other clocks.
func TestCheckClocks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name            string
		slept, stepped  time.Duration
		unknown, passed bool
	}{
		{name: "new"},
		{name: "stepped for less", stepped: 20 * time.Second},
		{name: "stepped over the deadline", stepped: ttl, unknown: true},
		{name: "slept for less", slept: 20 * time.Second},
		{name: "slept over the deadline", slept: ttl, passed: true},
		{name: "slept, and stepped back", slept: ttl, stepped: -ttl, passed: true},
	} {
		in(t, func(t *testing.T, w *world) {
			term := w.hold(t, w.session(t), "k", Given{})
			w.Slept.Store(int64(tt.slept))
			w.Stepped.Store(int64(tt.stepped))
			over, sure := term.CheckSure()
			check := term.Check()
			if over != tt.unknown || errors.Is(sure, claimerr.ErrLost) != tt.passed || !tt.passed && sure != nil {
				t.Errorf("%s: over by the wall clock %v, %v", tt.name, over, sure)
			}
			if errors.Is(check, txn.ErrUnknown) != tt.unknown || errors.Is(check, claimerr.ErrLost) != tt.passed || (check == nil) == (tt.unknown || tt.passed) {
				t.Errorf("%s: %v", tt.name, check)
			}
			if term.s.Ended() != tt.passed || term.IsLost() != tt.passed {
				t.Errorf("%s: ended %v", tt.name, term.s.Ended())
			}
		})
	}
}

// What Check doubts by the wall clock, the renewal that it asks for settles.
func TestCheckRenews(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s, err := w.Pool.Session(t.Context(), ttl, false)
		if err != nil {
			t.Fatal(err)
		}
		term := w.hold(t, s, "k", Given{})
		pass(time.Second)
		w.Stepped.Store(int64(ttl))
		if err := term.Check(); !errors.Is(err, txn.ErrUnknown) {
			t.Error(err)
		}
		synctest.Wait()
		if err := term.Check(); err != nil {
			t.Error("after a renewal:", err)
		}
	})
}

// Operations are carried out under the guard, or not at all. A refusal shows whether the claim is lost.
func TestCommit(t *testing.T) {
	t.Parallel()
	put := []*pb.RequestOp{txn.Put([]byte("/x"), "v", int64(0))}
	for _, tt := range []struct {
		name string
		do   func(w *world)
		want error
		lost string
		done bool
	}{
		{"held", func(*world) {}, nil, "", true},
		{"key deleted", func(w *world) { w.Remove(layout.Own("k")) }, claimerr.ErrLost, "lost k: deleted", false},
		{"key replaced", func(w *world) { w.Put(layout.Own("k"), "{}", 0) }, claimerr.ErrLost, "lost k: superseded", false},
		{"epoch raised", func(w *world) { w.raise() }, claimerr.ErrLost, "lost k: superseded", false},
		{"not answered", func(w *world) { w.Answer(nil, testlayers.Once(txn.ErrNoAnswer)) }, txn.ErrUnknown, "", true},
	} {
		in(t, func(t *testing.T, w *world) {
			term := w.hold(t, w.session(t), "k", Given{})
			tt.do(w)
			resp, err := term.Commit(t.Context(), put, []string{})
			if !errors.Is(err, tt.want) || (err == nil) != (resp != nil) || w.Take() != tt.lost || term.IsLost() != (tt.lost != "") {
				t.Errorf("%s: %v, %v", tt.name, err, term.Err())
			}
			same(t, tt.name+": carried out", w.has("/x"), tt.done)
		})
	}
}
