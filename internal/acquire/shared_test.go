package acquire

import (
	"testing"

	"github.com/etcdclaims/claims/internal/protocol"
)

// The next call for a key that the client shares needs one request: it knows the record. Another mode knows none.
func TestKnowing(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		m := w.Knowing(protocol.NewShared(layout, "k"))
		same(t, "nothing is known", m.Keys().Joins, false)
		first := w.hold(t, shared("k"))
		m = w.Knowing(protocol.NewShared(layout, "k"))
		same(t, "the record is known", m.Keys().Joins, true)
		_, err := w.Try(t.Context(), "k", shared("k"))
		same(t, "outcome", outcome(err), "won")
		same(t, "sent", w.Steps(), "take")
		e := protocol.Exclusive{Layout: layout, Key: "k"}
		same[protocol.Mode](t, "exclusive", w.Knowing(e), e)
		w.Put(layout.Epoch(), "1", 0)
		if err := w.Store.ReadEpoch(t.Context()); err != nil {
			t.Fatal(err)
		}
		same(t, "of another epoch", w.Knowing(protocol.NewShared(layout, "k")).Keys().Joins, false)
		same(t, "the first", outcome(first.Err()), "won")
	})
}

// A call whose record is another by now learns that one by its refusal.
func TestARecordThatIsGone(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		w.hold(t, shared("k"))
		w.Remove(layout.Own("k"))
		got, err := w.Try(t.Context(), "k", shared("k"))
		same(t, "outcome", outcome(err), "won")
		same(t, "sent", w.Steps(), "take, take")
		rev, _ := got.Mode.(protocol.Shared).Revision()
		same(t, "its record", rev, w.rev())
	})
}
