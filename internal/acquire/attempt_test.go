package acquire

import (
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Each attempt has an id of its own, under which it is known from the first moment to its end.
func TestNewAttempt(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		w.Put(layout.Epoch(), "4", 0)
		s, o := w.Session(t), shared("k")
		a, b := w.New(s, o.Mode, o), w.New(s, o.Mode, o)
		same(t, "ids differ", a.ID != b.ID, true)
		same(t, "known", w.Keys.IsUnderWay(a.ID), true)
		same(t, "ticket", a.Ticket, a.ID)
		same(t, "lease", a.Lease, int64(s.ID()))
		same(t, "epoch", a.Epoch.Value, 4)
		same(t, "user's key", a.User, "k")
		same(t, "its own claim", a.claimKey(), protocol.SharedKey("k", a.ID))
		h, _ := protocol.DecodeHolder([]byte(a.Value))
		same(t, "value", h.Claim, a.ID)
		a.End()
		same(t, "known", w.Keys.IsUnderWay(a.ID), false)
		same(t, "the other is known", w.Keys.IsUnderWay(b.ID), true)
		b.End()
	})
}

// An attempt under another epoch puts other values, for its claim and for what is beside it.
func TestAttemptUnder(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		o, _ := w.beside("k")
		a := w.New(w.Session(t), o.Mode, o)
		defer a.End()
		a.Under(&txn.Epoch{Value: 3, Rev: 9})
		h, _ := protocol.DecodeHolder([]byte(a.Value))
		same(t, "claim", h.Epoch, 3)
		same(t, "epoch", a.Claim().Epoch.Rev, 9)
		same(t, "beside", a.Claim().Beside.Value, a.ID+" under 3")
	})
}

// An attempt that was handed the key takes over what the holder before it knew, and gives the term what its call
// wants.
func TestAttemptHanded(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s, o := w.Session(t), exclusive("k")
		o.MinHold, o.MaxHold, o.Note, o.Prefers, o.Preference = time.Second, time.Minute, []byte("n"), true, 2
		a := w.New(s, o.Mode, o)
		defer a.End()
		line := protocol.Line{Known: true, Next: []protocol.Place{{Name: "next"}}}
		got := a.Handed(77, line, "trace")
		want := term.Given{
			Since: a.AskedAt(), MinHold: time.Second, MaxHold: time.Minute, Noted: true,
			Prefers: true, Preference: 2,
		}
		same(t, "given", got.Given, want)
		same(t, "revision", got.Rev, 77)
		same(t, "when", a.HandedAt, 77)
		same(t, "try", got.Try, a.Claim())
		same(t, "session", got.Session, s)
		same(t, "line", got.Line.Next[0].Name, "next")
		same(t, "trace", a.Trace, "trace")
		same(t, "a notice", got.Noticed, false)
	})
}

// A holder has slots to show if it is that of a slot, and none if it has the key as a whole.
func TestHolderOf(t *testing.T) {
	t.Parallel()
	slots := protocol.NewSlots(layout, "k", 3, 0)
	own := func(key string) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(layout.Own(key)), ModRevision: 7}
	}
	for _, tt := range []struct {
		name string
		mode protocol.Mode
		own  *mvccpb.KeyValue
		want int
	}{
		{"no holder", slots, nil, 0},
		{"of a slot", slots, own(protocol.SlotKey("k", 2)), 3},
		{"of the whole key", slots, own("k"), 0},
		{"of a key without slots", protocol.Exclusive{Layout: layout, Key: "k"}, own("k"), 0},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			a := w.New(w.Session(t), tt.mode, exclusive("k"))
			defer a.End()
			same(t, "holder", a.HolderOf(tt.own), Holder{Key: "k", Own: tt.own, Slots: tt.want})
		})
	}
}

// An attempt takes the key from a claim of its client only at the revision of that very claim.
func TestAttemptSupersedes(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		before := w.hold(t, exclusive("k"))
		a := w.New(w.Session(t), before.Mode, exclusive("k"))
		defer a.End()
		if a.Supersede(nil); a.Over != nil {
			t.Error("takes it from no claim")
		}
		a.Supersede(before)
		same(t, "revision", a.Over.Rev, keyspace.Revision(before.Fence))
		same(t, "the guarded key", strings.Contains(a.Over.Guard[0].String(), "own/k"), true)
	})
}
