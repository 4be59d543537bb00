package protocol_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A try finds, and takes back, only a claim with its own value on its own lease: others of its
// session have that lease, and after a restore there can be its value on another.
func TestOnlyItsOwn(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(m *model, c *caller){
		"another claim of the session": func(m *model, c *caller) {
			m.put(layout.Own("k"), protocol.Holder{Claim: "d", Owner: "c"}.Encode(), c.Lease)
		},
		"its value on another lease": func(m *model, c *caller) { m.put(layout.Own("k"), c.Value, 'o') },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			c := m.caller("c", exclusive(), noEpoch)
			put(m, c)
			if got := c.take(); got != "held by c" {
				t.Errorf("takes: %q", got)
			}
			confirm := protocol.Confirm{Try: &c.Try}
			if rev := confirm.Judge(m.request(confirm.Build())); rev > 0 {
				t.Errorf("confirmed at %d", rev)
			}
			m.request(protocol.Undo{Try: &c.Try, Unsure: true}.Build())
			if got := m.names(); got != "own/k" {
				t.Errorf("etcd has %q", got)
			}
		})
	}
}

// The key beside a claim is put together with it, if it is as the caller knows it.
func TestBeside(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	c := m.caller("c", exclusive(), noEpoch)
	c.Beside = &protocol.Beside{Key: "/b", Value: "mine", Lease: c.Lease}
	rev := m.put("/b", "theirs", 0)
	resp := m.request(protocol.Take{Try: &c.Try}.Build())
	taken := protocol.Take{Try: &c.Try}.Judge(resp)
	if taken.Rev > 0 || taken.Own != nil || taken.Beside == nil || taken.Beside.ModRevision != rev || m.KV(layout.Own("k")) != nil {
		t.Errorf("%+v, etcd has %q", taken, m.names())
	}
	look := protocol.Look{Try: &c.Try}
	if v := look.Judge(m.request(look.Build())); v.Beside == nil || v.Beside.ModRevision != rev {
		t.Errorf("%+v", v)
	}
	c.Beside.Rev = rev
	if got := c.take(); got != "granted" || string(m.KV("/b").Value) != "mine" || m.KV("/b").Lease != c.Lease {
		t.Errorf("takes: %q, beside it is %v", got, m.KV("/b"))
	}
}

// The note of a holder ends with its claim, however the key is taken from it.
func TestOverDeletesTheNote(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	h := m.has("o", exclusive()).held()
	m.put(layout.Note("k"), "n", 'o')
	c := m.caller("c", exclusive(), noEpoch)
	c.Over = protocol.Supersede(h)
	m.put(layout.Epoch(), "1", 0)
	c.Epoch = m.epoch()
	if got := c.take(); got != "other claim" { // whose epoch is over
		t.Errorf("takes: %q", got)
	}
	m.remove(layout.Epoch())
	c.Epoch = m.epoch()
	if got := c.take(); got != "granted" || m.names() != "own/k" {
		t.Errorf("takes: %q, etcd has %q", got, m.names())
	}
}

// A caller that takes the key from a claim of its own client leaves no place behind, although its
// request is carried out twice, and its condition is met the second time only.
func TestSupersededFromTheLine(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	h := m.has("o", exclusive()).held()
	c := m.caller("c", exclusive(), noEpoch)
	c.Over, c.PlaceValue = protocol.Supersede(h), c.Value
	c.Ask.If = []*pb.Compare{txn.CreatedAfter([]byte("/x"), 0)}
	r := protocol.Join{Try: &c.Try}.Build()
	m.request(r)
	if m.KV(c.PlaceKey()) == nil {
		t.Fatalf("no place: etcd has %q", m.names())
	}
	m.put("/x", "x", 0)
	if j, err := (protocol.Join{Try: &c.Try}).Judge(m.request(r)); err != nil || j.Rev == 0 || m.KV(c.PlaceKey()) != nil {
		t.Errorf("%+v, %v; etcd has %q", j, err, m.names())
	}
}

// A waiter whose place is another, or of another epoch, does not take the key, although it is free.
func TestAdvanceOnlyFromItsPlace(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		then func(m *model, c *caller)
		want string
	}{
		"its place":     {then: func(*model, *caller) {}, want: "granted"},
		"no place":      {then: func(m *model, c *caller) { m.remove(c.PlaceKey()) }, want: "out"},
		"another place": {then: func(m *model, c *caller) { m.remove(c.PlaceKey()); m.put(c.PlaceKey(), c.PlaceValue, c.Lease) }, want: "moved"},
		"another epoch": {then: func(m *model, _ *caller) { m.put(layout.Epoch(), "1", 0) }, want: "moved"},
	} {
		for modeName, mode := range modes {
			t.Run(name+", "+modeName, func(t *testing.T) {
				t.Parallel()
				m := newModel(t)
				m.has("o", exclusiveOr(mode()))
				c := m.caller("c", mode(), noEpoch)
				c.join()
				m.End('o')
				tt.then(m, c)
				if got := c.advance(); got != tt.want {
					t.Fatalf("got %q, want %q", got, tt.want)
				}
				if tt.want != "moved" {
					return
				}
				if !c.Epoch.Is(m.epoch()) || c.Queued != m.KV(c.PlaceKey()).CreateRevision {
					t.Errorf("it is in line since %d under epoch %v", c.Queued, c.Epoch)
				}
				if got := c.advance(); got != "granted" {
					t.Errorf("then: %q", got)
				}
			})
		}
	}
}

// A notice names the slot, and the epoch of the fence.
func TestNotified(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	epoch := &txn.Epoch{Value: 1, Rev: 7}
	c := m.caller("c", protocol.NewSlots(layout, "k", 3, 0), noEpoch)
	for slot := range 3 {
		c.Notified(protocol.Notice{Epoch: 1, Rev: 7, Slot: slot}, 9)
		h := protocol.NewHeld(&c.Try, c.Epoch.Fence(9))
		if h.Key != protocol.SlotKey("k", slot) || !c.Epoch.Is(epoch) || h.EpochRev != 7 || h.Fence != epoch.Fence(9) {
			t.Errorf("%+v", h)
		}
	}
}

// A waiter learns what keeps hand-overs from it: readers that have the key, or wait before it.
func TestUnnoticed(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	m.has("o", exclusive())
	m.waits("b", shared())
	c := m.caller("c", exclusive(), noEpoch)
	if got := c.join(); got != "held by o, behind, unnoticed" {
		t.Errorf("joins: %q", got)
	}
	if got := c.advance(); got != "held by o, behind b, unnoticed" {
		t.Errorf("got %q", got)
	}
	m.End('o')
	m.End('b')
	m.End('c')
	m.has("r", shared())
	m.waits("w", exclusive())
	d := m.caller("d", exclusive(), noEpoch)
	if got := d.join(); got != "held by shared, behind, unnoticed" { // it is not the first, which looks after them
		t.Errorf("joins: %q", got)
	}
	if got := d.advance(); got != "held by shared, behind w, unnoticed" {
		t.Errorf("got %q", got)
	}
}
