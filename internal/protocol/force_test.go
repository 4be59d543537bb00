package protocol_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/protocol"
)

// A key is freed by force only from the holder that was looked at, which is told why.
func TestForce(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	m.has("c", exclusive())
	m.put(layout.Note("k"), "n", 'c')
	force := protocol.Force{Layout: layout, Key: "k", Own: m.KV(layout.Own("k")), By: "op", Reason: "why"}
	if resp := m.request(force.Build()); !resp.Succeeded || m.names() != "session/i/evict/c" {
		t.Errorf("%v, etcd has %q", resp.Succeeded, m.names())
	}
	m.End('c')
	m.has("o", exclusive())
	if resp := m.request(force.Build()); resp.Succeeded {
		t.Error("another holder lost the key")
	}
	force.Own = m.KV(layout.Own("k"))
	m.Restore(layout.Own("k"), 'p')
	if resp := m.request(force.Build()); resp.Succeeded {
		t.Error("a holder on another lease lost the key")
	}
	m.Restore(layout.Own("k"), 'o')
	m.put(layout.Own("k"), string(force.Own.Value), 'o')
	if resp := m.request(force.Build()); resp.Succeeded {
		t.Error("a younger claim lost the key")
	}
	force.Own = m.KV(layout.Own("k"))
	m.put(layout.Notice("i", "o"), "{}", 'o')
	if resp := m.request(force.Silently()); !resp.Succeeded || m.names() != "" {
		t.Errorf("%v, etcd has %q", resp.Succeeded, m.names())
	}
}

// A late note does not replace a younger one, and a note that was written by a request whose
// reply was lost is found.
func TestWriteNote(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	c := m.has("c", exclusive())
	h := c.held()
	note := protocol.WriteNote{Held: h, Value: "1"}
	m.fate = comesLate
	m.request(note.Build())
	younger := protocol.WriteNote{Held: h, Value: "2"}
	n := younger.Judge(m.request(younger.Build()))
	if !n.Done || n.Rev != m.Revision() {
		t.Errorf("%+v", n)
	}
	m.arrive()
	if got := string(m.KV(layout.Note("k")).Value); got != "2" {
		t.Errorf("the note is %q", got)
	}
	if again := younger.Judge(m.request(younger.Build())); !again.Done || again.Rev != n.Rev {
		t.Errorf("once more: %+v", again)
	}
	third := protocol.WriteNote{Held: h, Value: "3"}
	if n := third.Judge(m.request(third.Build())); n.Done || n.State != protocol.Kept || n.Rev == 0 {
		t.Errorf("after another note: %+v", n)
	}
	m.put(layout.Own("k"), "x", 'o') // another owner, whose note is the same
	m.put(layout.Note("k"), "3", 'o')
	if n := third.Judge(m.request(third.Build())); n.Done || n.State != protocol.Replaced {
		t.Errorf("under the claim of another: %+v", n)
	}
	first := protocol.WriteNote{Held: h, Value: "4", After: m.KV(layout.Note("k")).ModRevision}
	if m.request(first.Build()); string(m.KV(layout.Note("k")).Value) != "3" {
		t.Error("it has replaced the note of another")
	}
	m.remove(layout.Own("k"))
	if n := third.Judge(m.request(third.Build())); n.State != protocol.Deleted {
		t.Errorf("without the claim: %+v", n)
	}
}
