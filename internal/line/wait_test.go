package line

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// places returns how many places in line there are.
func (w *world) places() (n int) {
	w.Parts.Etcd.With(func(m *memetcd.Model) { n = len(m.Under(layout.Lines())) })
	return n
}

// What becomes of the request that joins the line. No place is left without a caller.
func TestJoin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		held   bool
		do     func(w *world)
		want   string
		sent   string
		places int // while it waits, or is over
	}{
		{"free", false, func(*world) {}, "won", "join", 0},
		{
			"free, request lost", false, func(w *world) { w.Answer(testlayers.Once(txn.ErrNoAnswer), nil) },
			"again", "join, read or void", 0,
		},
		{
			"free, reply lost", false, func(w *world) { w.Answer(nil, testlayers.Once(txn.ErrNoAnswer)) },
			"won", "join, read or void, leave", 0,
		},
		{"held", true, func(*world) {}, "waits", "join", 1},
		{
			"held, request lost", true, func(w *world) { w.Answer(testlayers.Once(txn.ErrNoAnswer), nil) },
			"again", "join, read or void", 0,
		},
		{
			"held, reply lost", true, func(w *world) { w.Answer(nil, testlayers.Once(txn.ErrNoAnswer)) },
			"again", "join, read or void", 0,
		},
		{"epoch raised", true, func(w *world) { w.Put(layout.Epoch(), "1", 0) }, "again", "join", 0},
		{"denied", true, func(w *world) {
			w.Answer(testlayers.Once(rpctypes.ErrPermissionDenied), nil)
		}, "etcdclaims: permission denied by etcd: etcdserver: permission denied; " +
			"grant the client's user read and write below the prefix of its keys; see docs/permissions.md of etcdclaims", "join", 0},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			w.Open(t)
			if tt.do(w); tt.held {
				w.Other(layout.Own("k"), "x")
			}
			w.Keys.SetContended("k", true)
			x := w.waits(t, exclusive("k"))
			same(t, "sent", w.Steps(), tt.sent)
			same(t, "places", w.places(), tt.places)
			same(t, "outcome", x.ends(), tt.want)
			pass(time.Second)
			same(t, "places at the end", w.places(), 0)
		})
	}
}

// A key that was free is not contended any more. One that the client had to wait for is.
func TestContended(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]bool{"free": false, "held": true} {
		run(t, name, func(t *testing.T, w *world) {
			w.Keys.SetContended("k", true)
			if held {
				w.Other(layout.Own("k"), "x")
			}
			x := w.waits(t, exclusive("k"))
			w.Remove(layout.Own("k"))
			w.Waiters.DoubtAll()
			same(t, "outcome", x.ends(), "won")
			w.Keys.Remove(w.Keys.Term("k"), "k")
			same(t, "contended", w.Keys.Contended("k"), held)
		})
	}
}

// A place shows a releaser whether it may hand the key over.
func TestPlace(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		call func(o *acquire.Call)
		kind string
	}{
		"the key":        {func(*acquire.Call) {}, ""},
		"a note with it": {func(o *acquire.Call) { o.Note = []byte("n") }, protocol.KindSelf},
		"to share it":    {func(o *acquire.Call) { o.Mode = protocol.NewShared(layout, "k") }, protocol.KindSelf},
	} {
		run(t, name, func(t *testing.T, w *world) {
			w.Other(layout.Own("k"), "x")
			o := exclusive("k")
			tt.call(o)
			x := w.waits(t, o)
			var h protocol.Holder
			w.Parts.Etcd.With(func(m *memetcd.Model) { h, _ = protocol.DecodeHolder(m.KV(x.a.PlaceKey()).Value) })
			same(t, "claim", h.Claim, x.a.ID)
			same(t, "kind", h.Kind, tt.kind)
			same(t, "outcome", x.ends(), "waits")
		})
	}
}

// The lease of a Manual claim is renewed while its call is in line, and not after it.
func TestManualWaits(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		w.Other(layout.Own("k"), "x")
		o := exclusive("k")
		o.Manual = true
		x := w.waits(t, o)
		pass(10 * ttl)
		same(t, "ended", x.a.S.Ended(), false)
		w.Remove(layout.Own("k"))
		w.Waiters.DoubtAll()
		same(t, "outcome", x.ends(), "won")
		pass(2 * ttl)
		same(t, "ended", x.a.S.Ended(), true)
	})
}

// A reentrant call leaves the line for a claim of its own client, before it waits or later.
func TestReentrantCallsLeaveTheLine(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"before": true, "later": false} {
		run(t, name, func(t *testing.T, w *world) {
			s, o := w.Open(t), exclusive("k")
			holds := func() {
				s.Again()
				if r := w.TryOnce(t.Context(), s, "k", o); r.Term == nil {
					t.Fatal(r.Err)
				}
			}
			again := exclusive("k")
			again.Reentrant = true
			if before {
				holds()
			} else {
				w.Other(layout.Own("k"), "x")
			}
			x := w.waits(t, again)
			if !before {
				w.Remove(layout.Own("k"))
				w.Remove(x.a.PlaceKey()) // or the key would not be free
				holds()
			}
			same(t, "outcome", x.ends(), "again")
			synctest.Wait()
			same(t, "places", w.places(), 0)
		})
	}
}

// A place whose claim was handed over meanwhile is not used twice: the attempt has the key, or gives it back.
func TestHandedOverWhileItLeaves(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		w.Other(layout.Own("k"), "x")
		x := w.waits(t, exclusive("k"))
		w.Answer(func(*pb.TxnRequest) error { return rpctypes.ErrNoLeader }, nil)
		x.leave()
		synctest.Wait()
		x.hands("")
		same(t, "owner", w.Owner("k").Claim, x.a.ID)
		w.Answer(nil, nil)
		pass(time.Second)
		same(t, "owner", w.Owner("k").Claim, "")
		same(t, "outcome", x.ends(), "waited for x: context canceled")
	})
}
