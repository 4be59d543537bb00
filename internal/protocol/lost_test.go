package protocol_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/protocol"
)

// After a reply was lost, Confirm finds out whether the try has the key. If it has not, what
// arrives after that does nothing, and nothing of the try is left.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	steps := map[string]func(c *caller) string{
		"take": (*caller).take, "join": (*caller).join,
		"advance": func(c *caller) string {
			f := c.fate
			c.fate = arrives
			c.has("o", exclusiveOr(c.Mode))
			if got := c.join(); !strings.Contains(got, "held by o") {
				c.tb.Fatalf("joins the line: %s", got)
			}
			c.End('o')
			c.fate = f
			return c.advance()
		},
	}
	for stepName, step := range steps {
		for modeName, mode := range modes {
			for _, f := range []fate{loses, losesReply, comesLate} {
				for _, free := range []bool{true, false} {
					name := fmt.Sprintf("%s, %s, fate %d, free %v", stepName, modeName, f, free)
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						loseOne(t, stepName, step, mode, f, free)
					})
				}
			}
		}
	}
}

func loseOne(t *testing.T, stepName string, step func(c *caller) string, mode func() protocol.Mode, f fate, free bool) {
	t.Helper()
	m := newModel(t)
	prepared := mode()
	if prepared.Keys().Slots > 0 { // with a record, so that the first request has a chance
		m.has("o", mode())
		m.End('o')
	}
	if !free && stepName != "advance" {
		m.has("o", exclusiveOr(mode()))
	}
	c := m.caller("c", prepared, noEpoch)
	c.Ask.Note = "n"
	before := m.names()
	m.fate = f
	if got := step(c); got != "unknown" {
		t.Fatalf("the step: %s", got)
	}
	confirm := protocol.Confirm{Try: &c.Try, Enqueues: stepName != "take"}
	rev := confirm.Judge(m.request(confirm.Build()))
	m.arrive()
	own := m.KV(layout.Own(c.Mode.Keys().Claim))
	has := own != nil && string(own.Value) == c.Value
	if has != (rev > 0) || has && own.ModRevision != rev {
		t.Errorf("confirmed at %d, and etcd has %v", rev, own)
	}
	if want := f == losesReply && (free || stepName == "advance"); has != want {
		t.Errorf("has the key: %v", has)
	}
	if !has {
		left := strings.Fields(m.names())
		for _, key := range left {
			if strings.HasSuffix(key, "c") || strings.HasPrefix(key, "note/") {
				t.Errorf("etcd has %s", key)
			}
		}
		return
	}
	undo := protocol.Undo{Try: &c.Try, Enqueues: stepName != "take", Unsure: true}
	m.request(undo.Build())
	if got := m.names(); stepName != "advance" && got != before {
		t.Errorf("after the undo etcd has %q, before it had %q", got, before)
	}
}

// exclusiveOr is the mode in which another caller keeps one of the mode out.
func exclusiveOr(mode protocol.Mode) protocol.Mode {
	if mode.Keys().Slots > 0 {
		return slots()
	}
	return exclusive()
}

// A request that is carried out twice on its way sees itself, and does not take the caller for
// another.
func TestTwice(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			m.has("o", mode()) // so that there is a record
			m.End('o')
			c := m.caller("c", mode(), noEpoch)
			m.fate = comesTwice
			if got := c.take(); got != "granted" && name != "shared" {
				t.Errorf("take: %s", got)
			}
			j := m.caller("j", mode(), noEpoch)
			if name == "exclusive" || name == "slots" {
				m.End('c')
				m.fate = comesTwice
				if got := j.join(); got != "granted twice" {
					t.Errorf("join: %s", got)
				}
				m.request(protocol.Leave{Try: &j.Try, Rev: m.Revision()}.Build())
				if got := m.names(); strings.Contains(got, "wait/") {
					t.Errorf("etcd has %q", got)
				}
			}
		})
	}
}

// All keys are claimed or none, and each refusal names its key.
func TestTakeAll(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	tries := func() (protocol.TakeAll, *caller) {
		a := m.caller("c", protocol.Exclusive{Layout: layout, Key: "k"}, noEpoch)
		b := a.Try
		b.Mode = protocol.Exclusive{Layout: layout, Key: "l"}
		return protocol.TakeAll{&a.Try, &b}, a
	}
	all, _ := tries()
	if r := all.Judge(m.request(all.Build())); r.Rev != m.Revision() || m.names() != "own/k own/l" {
		t.Errorf("%+v, etcd has %q", r, m.names())
	}
	if r := all.Judge(m.request(all.Build())); r.Rev != m.Revision() {
		t.Errorf("once more: %+v", r)
	}
	m.remove(layout.Own("k"))
	if r := all.Judge(m.request(all.Build())); r.Rev != 0 || len(r.Stray) != 1 || r.Stray[0] != 1 {
		t.Errorf("without the first: %+v", r)
	}
	m.End('c')
	m.has("o", exclusive())
	all, _ = tries()
	r := all.Judge(m.request(all.Build()))
	if r.Rev != 0 || r.Seen[0].Own == nil || r.Seen[1].Own != nil || m.names() != "own/k" {
		t.Errorf("one is held: %+v, etcd has %q", r, m.names())
	}
	m.fate = losesReply
	m.End('o')
	all, _ = tries()
	if resp := m.request(all.Build()); resp != nil {
		t.Fatal(resp)
	}
	confirm := protocol.Confirm{Try: all[0], With: all[1:]}
	if rev := confirm.Judge(m.request(confirm.Build())); rev != m.KV(layout.Own("k")).ModRevision {
		t.Errorf("confirmed at %d", rev)
	}
	m.remove(layout.Own("k")) // an operator takes the first away
	if rev := confirm.Judge(m.request(confirm.Build())); rev != 0 || m.names() != "" {
		t.Errorf("confirmed at %d, etcd has %q", rev, m.names())
	}
}

// A caller that was handed another slot than it has tried finds it.
func TestAnotherSlot(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	two := func() protocol.Mode { return protocol.NewSlots(layout, "k", 2, 0) }
	m.has("o", two())
	c := m.caller("c", two(), noEpoch)
	c.take()
	m.End('c')
	for i := range 2 { // one of them is not the one it tried
		m.put(layout.Own(protocol.SlotKey("k", i)), c.Value, c.Lease)
	}
	confirm := protocol.Confirm{Try: &c.Try, Enqueues: true}
	if rev := confirm.Judge(m.request(confirm.Build())); rev == 0 {
		t.Error("it has a slot")
	}
	drop, ok := protocol.Drop{Try: &c.Try, Claims: c.Elsewhere(m.request(protocol.Undo{Try: &c.Try, Enqueues: true}.Build()))}.Build()
	if !ok {
		t.Fatal("the other one is to be given up")
	}
	m.request(drop)
	if got := m.names(); got != "own/k" {
		t.Errorf("etcd has %q", got)
	}
}

// What a watch reports lets a try go on, or gives it the key.
func TestHeard(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mode    func() protocol.Mode
		key     string
		own     bool // the value is the try's
		deleted bool
		given   bool
		again   bool
	}{
		"the claim is gone":             {mode: exclusive, key: layout.Own("k"), deleted: true, again: true},
		"another has the claim":         {mode: exclusive, key: layout.Own("k")},
		"it has the claim":              {mode: exclusive, key: layout.Own("k"), own: true, given: true},
		"the place before is gone":      {mode: exclusive, key: layout.Place("k", "b"), deleted: true, again: true},
		"a reader is gone":              {mode: exclusive, key: layout.Own("k#shared-b"), deleted: true, again: true},
		"the claim of another is gone":  {mode: exclusive, key: layout.Own("k2"), deleted: true},
		"the record is another":         {mode: slots, key: layout.Own("k"), again: true},
		"a slot is free":                {mode: slots, key: layout.Own("k#slot-0"), deleted: true, again: true},
		"a surplus slot is free":        {mode: slots, key: layout.Own("k#slot-7"), deleted: true, again: true},
		"it has a slot":                 {mode: slots, key: layout.Own("k#slot-0"), own: true, given: true},
		"a key between is gone":         {mode: slots, key: layout.Own("k#slot-0x"), deleted: true},
		"the record of readers is gone": {mode: shared, key: layout.Own("k"), deleted: true, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			c := m.caller("c", tt.mode(), noEpoch)
			value, lease := "{}", int64('o')
			if tt.own {
				value, lease = c.Value, c.Lease
			}
			m.put(tt.key, value, lease)
			rev, again := c.Heard(m.KV(tt.key), tt.deleted)
			if (rev > 0) != tt.given || again != tt.again {
				t.Errorf("got %d, %v", rev, again)
			}
		})
	}
}
