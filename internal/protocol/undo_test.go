package protocol_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// An undo leaves nothing of a try, whether or not it had its claim by then, and puts back what was
// beside that.
func TestUndo(t *testing.T) {
	t.Parallel()
	for name, has := range map[string]bool{"with its claim": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			m.has("o", exclusive())
			c := m.caller("c", exclusive(), noEpoch)
			c.join()
			if has {
				m.End('o')
				m.put(layout.Own("k"), c.Value, c.Lease)
			}
			m.put(layout.Notice("i", "c"), "{}", c.Lease)
			back := []*pb.RequestOp{txn.Put([]byte("/b"), "back", int64(0))}
			r := protocol.Undo{Try: &c.Try, Enqueues: true, Unsure: true, Besides: back}.Build()
			m.request(r)
			want := "/b own/k"
			if has {
				want = "/b"
			}
			if got := m.names(); got != want || m.KV(layout.Void(c.Ticket)) == nil { // which stops a request that arrives once more
				t.Errorf("etcd has %q, want %q and a void", got, want)
			}
			if r.Beside != txn.TakesBack {
				t.Error("it shares no round trip with other undos")
			}
		})
	}
}

// A request that arrives after its undo does nothing.
func TestUndoneRequestIsLate(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		for _, enqueues := range []bool{true, false} {
			m := newModel(t)
			if name == "slots" {
				m.put(layout.Own("k"), protocol.SlotsRecord(1), 0)
			}
			before := m.names()
			c := m.caller("c", mode(), noEpoch)
			m.fate = comesLate
			if step := map[bool]func() string{true: c.join, false: c.take}[enqueues]; step() != "unknown" {
				t.Fatal("the reply was not lost")
			}
			r := protocol.Undo{Try: &c.Try, Enqueues: enqueues, Unsure: true}.Build()
			m.request(r)
			m.arrive()
			if got := m.names(); got != before {
				t.Errorf("%s: etcd has %q", name, got)
			}
			if (r.Beside == txn.TakesBack) != (name == "exclusive") {
				t.Errorf("%s: shares a round trip: %v", name, r.Beside)
			}
		}
	}
}

// A note is stray if it is on the lease, and the claim of the key is not.
func TestStrayNote(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		claim, note int64 // leases, 0 if there is none
		stray       bool
	}{
		"no claim":                         {note: 'c', stray: true},
		"the claim of another":             {claim: 'o', note: 'c', stray: true},
		"another claim of the session":     {claim: 'c', note: 'c'},
		"the claim and note of another":    {claim: 'o', note: 'o'},
		"the note of one that ended since": {note: 'o'},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			if tt.claim > 0 {
				m.put(layout.Own("k"), "x", tt.claim)
			}
			m.put(layout.Note("k"), "n", tt.note)
			c := m.caller("c", exclusive(), noEpoch)
			c.Ask.Note = "n"
			confirm := protocol.Confirm{Try: &c.Try}
			if rev := confirm.Judge(m.request(confirm.Build())); rev > 0 || (m.KV(layout.Note("k")) == nil) != tt.stray {
				t.Errorf("confirmed at %d, etcd has %q", rev, m.names())
			}
		})
	}
}

// Of the slots that a try was handed it gives up all but its own, and none of others.
func TestDrop(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	c := m.caller("c", protocol.NewSlots(layout, "k", 5, 0), noEpoch)
	m.put(layout.Own("k"), protocol.SlotsRecord(5), 0)
	for i, value := range []string{c.Value, c.Value, "theirs", c.Value, c.Value} {
		m.put(layout.Own(protocol.SlotKey("k", i)), value, c.Lease)
	}
	m.put(layout.Note("k#slot-1"), "n", c.Lease)
	c.Found(m.KV(layout.Own("k#slot-0")))
	claims := c.Elsewhere(m.request(protocol.Leave{Try: &c.Try, Rev: m.Revision()}.Build()))
	m.put(layout.Own("k#slot-3"), "handed on", c.Lease)
	m.Restore(layout.Own("k#slot-4"), 'o')
	r, some := protocol.Drop{Try: &c.Try, Claims: claims}.Build()
	m.request(r)
	if got, want := m.names(), "own/k own/k#slot-0 own/k#slot-2 own/k#slot-3 own/k#slot-4"; !some || got != want {
		t.Errorf("etcd has %q, want %q", got, want)
	}
}

// What a claim has left is cleared away after it, and nothing of its successor.
func TestClearAway(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		then func(m *model)
		keys string
	}{
		"its note":       {keys: "own/k"},
		"a younger note": {then: func(m *model) { m.put(layout.Note("k"), "2", 'c') }, keys: "own/k"},
		"the note of a claim of the session": {then: func(m *model) {
			m.put(layout.Own("k"), "d", 'c')
			m.put(layout.Note("k"), "d", 'c')
		}, keys: "note/k own/k"},
		"the note of another": {then: func(m *model) { m.put(layout.Note("k"), "d", 'o') }, keys: "note/k own/k"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			r := protocol.Release{Held: m.has("c", exclusive()).held(), Noted: true, Noticed: true}
			rev := m.put(layout.Note("k"), "1", 'c')
			m.put(layout.Notice("i", "c"), "{}", 'c')
			m.put(layout.Own("k"), "x", 'o')
			if tt.then != nil {
				tt.then(m)
			}
			in, some := r.ClearAway(rev)
			m.request(in)
			if got := m.names(); !some || got != tt.keys {
				t.Errorf("etcd has %q, want %q", got, tt.keys)
			}
			m.put(layout.Notice("i", "c"), "{}", 'c')
			if resp := m.request(r.Delete()); resp.Succeeded || m.names() != tt.keys {
				t.Errorf("deleted: %v, etcd has %q", resp.Succeeded, m.names())
			}
		})
	}
}
