package term

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/protocol"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// everything verifies all claims.
var everything = lease.Turn{All: true}

// What a verification finds of each of three claims, and of what callers wait for.
func TestVerify(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		do       func(w *world, b *Term)
		calls    string
		requests int64 // that verify
	}{
		{"all is well", func(*world, *Term) {}, "", 1},
		{"one was deleted", func(w *world, _ *Term) { w.Remove(layout.Own("b")) }, "lost b: deleted", 2},
		{"one has another owner", func(w *world, _ *Term) { w.Put(layout.Own("b"), "{}", 0) }, "lost b: superseded", 2},
		{"one was put again, on another lease", func(w *world, _ *Term) {
			w.Etcd.With(func(m *memetcd.Model) { m.Restore(layout.Own("b"), m.Get(layout.Own("b")).Lease+1) })
		}, "lost b: superseded", 2},
		{"the epoch was raised", func(w *world, _ *Term) { w.raise() }, "lost a: superseded, lost b: superseded, lost c: superseded", 1},
		{"a key changed that is waited for", func(w *world, _ *Term) {
			w.waits = []Wait{{protocol.Wait{Key: "/old", Rev: w.Put("/old", "", 0)}, w}, {protocol.Wait{Key: "/x", Rev: w.Put("/x", "", 0)}, w}}
			w.Put("/x", "", 0)
		}, "changed /x", 2},
		{"a key is gone that is waited for", func(w *world, _ *Term) {
			w.waits = []Wait{{protocol.Wait{Key: "/gone", Rev: 5}, w}}
		}, "changed /gone", 2},
		{"a notice has come", func(w *world, _ *Term) {
			w.Put(layout.Notice("me", "old"), "old", 0)
			w.since = w.Put(layout.Notice("me", "new"), "new", 0)
		}, "delivered new", 1},
		{"no caller waits for a notice", func(w *world, _ *Term) { w.Put(layout.Notice("me", "x"), "x", 0) }, "", 1},
		{"it is being released", func(w *world, b *Term) { _ = b.begin(); w.Remove(layout.Own("b")) }, "", 2},
	} {
		in(t, func(t *testing.T, w *world) {
			s := w.session(t)
			var terms []*Term
			for _, key := range []string{"a", "b", "c"} {
				terms = append(terms, w.hold(t, s, key, Given{}))
			}
			tt.do(w, terms[1])
			before := w.Store.Requests()
			done, err := w.Verify(t.Context(), s, everything)
			if requests := w.Store.Requests() - before; err != nil || requests != tt.requests {
				t.Errorf("%s: %d requests, %v", tt.name, requests, err)
			}
			if calls := w.Take(); calls != tt.calls || done.Rev == 0 {
				t.Errorf("%s: %q, at %d", tt.name, calls, done.Rev)
			}
			synctest.Wait()
		})
	}
}

// A verification that fails loses nothing.
func TestVerifyFails(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.session(t)
		term := w.hold(t, s, "k", Given{})
		w.Remove(layout.Own("k"))
		for _, fail := range []func(n *int) error{
			func(*int) error { return rpctypes.ErrNoLeader },
			func(n *int) error { // what is read after the refusal is not answered
				if *n++; *n > 1 {
					return rpctypes.ErrNoLeader
				}
				return nil
			},
		} {
			n := 0
			w.Answer(func(*pb.TxnRequest) error { return fail(&n) }, nil)
			if _, err := w.Verify(t.Context(), s, everything); !errors.Is(err, rpctypes.ErrNoLeader) || term.Err() != nil {
				t.Error(err, term.Err())
			}
		}
	})
}

// A server that takes fewer operations than was assumed gets smaller requests, which verify all.
func TestVerifyFewerOperations(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.session(t)
		for i := range 200 {
			w.Remove(layout.Own(w.hold(t, s, fmt.Sprint(i), Given{}).Key))
		}
		var widest atomic.Int64
		w.Answer(func(in *pb.TxnRequest) error {
			if len(in.Compare) > 40 || len(in.Success) > 40 {
				return rpctypes.ErrTooManyOps
			}
			widest.Store(max(widest.Load(), int64(len(in.Compare))))
			return nil
		}, nil)
		if _, err := w.Verify(t.Context(), s, everything); err != nil || s.Size() != 0 || widest.Load() == 0 {
			t.Errorf("%v, %d are not found to be lost, widest request %d", err, s.Size(), widest.Load())
		}
	})
}

// As many lanes as requests, up to a limit.
func TestLanes(t *testing.T) {
	t.Parallel()
	for requests, want := range map[int]int{0: 1, 1: 1, 2: 2, mostLanes: mostLanes, 100: mostLanes} {
		same(t, fmt.Sprint(requests), lanesOf(requests), want)
	}
}
