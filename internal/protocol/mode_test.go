package protocol_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A waiter does not take a slot that is not there any more, although it was free.
func TestSurplusSlotIsNotTried(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	m.put(layout.Own("k"), protocol.SlotsRecord(2), 0)
	m.put(layout.Own("k#slot-0"), protocol.Holder{Owner: "o"}.Encode(), 'o')
	m.put(layout.Own("k#slot-1"), protocol.Holder{Owner: "p"}.Encode(), 'p')
	c := m.caller("c", protocol.NewSlots(layout, "k", 2, 0), noEpoch)
	if got := c.join(); got != "held by o" {
		t.Errorf("joins: %q", got)
	}
	m.put(layout.Own("k"), protocol.SlotsRecord(1), 0)
	m.End('p')
	for range 3 {
		if got := c.advance(); got != "held by o" {
			t.Errorf("got %q", got)
		}
	}
	m.End('o')
	if got := c.advance(); got != "granted" || m.KV(layout.Own("k#slot-0")) == nil {
		t.Errorf("got %q, etcd has %q", got, m.names())
	}
}

// A slot that is not there any more is freed, and not handed over.
func TestSurplusSlotIsFreed(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	m.put(layout.Own("k"), protocol.SlotsRecord(2), 0)
	m.put(layout.Own("k#slot-0"), protocol.Holder{Owner: "o"}.Encode(), 'o')
	c := m.has("c", protocol.NewSlots(layout, "k", 2, 0))
	m.waits("w", protocol.NewSlots(layout, "k", 2, 0))
	r := protocol.Release{Held: c.held()}
	in, to := r.Pass(m.readLine(r).Line)
	m.put(layout.Own("k"), protocol.SlotsRecord(1), 0)
	if resp := m.request(in); resp.Succeeded || to != "w" {
		t.Errorf("handed to %q: %v", to, resp.Succeeded)
	}
	in, to = r.Pass(m.readLine(r).Line)
	if resp := m.request(in); !resp.Succeeded || to != "" || m.names() != "own/k own/k#slot-0 wait/w" {
		t.Errorf("handed to %q: %v, etcd has %q", to, resp.Succeeded, m.names())
	}
}

// Requests name what the caller's conditions and operations concern, and share with no other if
// that may be anything.
func TestConcerns(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	ops := []*pb.RequestOp{txn.Put([]byte("/x"), "", int64(0))}
	for name, mode := range modes {
		c := m.caller("c", mode(), noEpoch)
		c.Ask.Then = ops
		for step, build := range map[string]func() txn.Request{
			"take": protocol.Take{Try: &c.Try}.Build, "join": protocol.Join{Try: &c.Try}.Build, "advance": protocol.Advance{Try: &c.Try}.Build,
		} {
			if c.Ask.Concern = nil; build().Key != "" {
				t.Errorf("%s, %s: shares", name, step)
			}
			c.Ask.Concern = []string{"/x"}
			r := build()
			if r.Key != c.Mode.Keys().Line || !slices.Contains(r.Also, "/x") {
				t.Errorf("%s, %s: concerns %q, %q", name, step, r.Key, r.Also)
			}
			if claim := c.Mode.Keys().Claim; claim != r.Key && !slices.Contains(r.Also, claim) {
				t.Errorf("%s, %s: concerns %q, %q", name, step, r.Key, r.Also)
			}
		}
	}
	h := m.has("c", exclusive()).held()
	if r := (protocol.Commit{Held: h, Then: ops}).Build(); r.Key != "" {
		t.Errorf("the transaction of a holder concerns %q", r.Key)
	}
	if r := (protocol.Commit{Held: h, Then: ops, Concern: []string{"/x"}}).Build(); r.Key != "k" || !slices.Contains(r.Also, "/x") {
		t.Errorf("the transaction of a holder concerns %q, %q", r.Key, r.Also)
	}
}

// The record of readers is deleted when the last of them has gone, and not before.
func TestClear(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	m.has("a", shared())
	m.has("b", shared())
	all := protocol.Clear{Layout: layout, Key: "k", Record: m.KV(layout.Own("k"))}
	if n := all.Judge(m.request(all.Build())); n != 2 || m.KV(layout.Own("k")) == nil {
		t.Fatalf("%d share the key, etcd has %q", n, m.names())
	}
	m.End('a')
	m.End('b')
	younger := all
	younger.Record = m.KV(layout.Own("k"))
	m.put(layout.Own("k"), "x", 0)
	if n := younger.Judge(m.request(younger.Build())); n != 0 || m.KV(layout.Own("k")) == nil {
		t.Errorf("%d share the key, etcd has %q", n, m.names())
	}
	all.Record = m.KV(layout.Own("k"))
	if n := all.Judge(m.request(all.Build())); n != 0 || m.names() != "" {
		t.Errorf("%d share the key, etcd has %q", n, m.names())
	}
}

// The fence of a shared claim is that of its record; that of a slot is its own.
func TestTokens(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	a := m.has("a", shared()).held()
	b := m.has("b", shared()).held()
	if a.Token() != b.Token() || a.Token().Key != "k" || a.Fence == b.Fence {
		t.Errorf("%v, %v", a.Token(), b.Token())
	}
	m.End('a')
	m.End('b')
	m.remove(layout.Own("k"))
	s := m.has("s", slots()).held()
	if got := s.Token(); got.Fence != s.Fence || !strings.HasPrefix(got.Key, "k#slot-") {
		t.Error(got)
	}
}

// A caller that has seen no record of the slots puts one only while there is nothing in its place.
func TestRecordIsNotPutOverAClaim(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	c := m.caller("c", slots(), noEpoch)
	if got := c.take(); got != "again" {
		t.Errorf("takes: %q", got)
	}
	m.has("o", exclusive())
	for range 2 {
		if got := c.take(); got != "held by o" || m.names() != "own/k" {
			t.Errorf("takes: %q, etcd has %q", got, m.names())
		}
	}
}

// The number of slots changes only as long as what was read of the key has not, and ends only
// without holders that came since and without a line.
func TestResize(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before, then func(m *model)
		n            int
		want         string // the record afterwards
		whole, done  bool
		refused      bool
	}{
		"the first number":        {n: 2, want: protocol.SlotsRecord(2)},
		"another":                 {before: func(m *model) { m.has("o", slots()) }, n: 2, want: protocol.SlotsRecord(2)},
		"the same":                {before: func(m *model) { m.has("o", slots()) }, n: 1, want: protocol.SlotsRecord(1), done: true},
		"none, and there is none": {done: true},
		"a key held as a whole":   {before: func(m *model) { m.has("o", exclusive()) }, n: 2, whole: true},
		"another call was faster": {
			n: 2, then: func(m *model) { m.put(layout.Own("k"), protocol.SlotsRecord(3), 0) }, want: protocol.SlotsRecord(3), refused: true,
		},
		"an owner was faster": {n: 2, then: func(m *model) { m.has("o", exclusive()) }, refused: true},
		"none":                {before: func(m *model) { m.has("o", slots()); m.End('o') }},
		"none, and one waits": {
			before: func(m *model) { m.has("o", slots()); m.waits("w", slots()); m.End('o') }, want: protocol.SlotsRecord(1), refused: true,
		},
		"none, and one came": {
			before: func(m *model) { m.has("o", slots()); m.End('o') }, then: func(m *model) { m.has("p", slots()) },
			want: protocol.SlotsRecord(1), refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			if tt.before != nil {
				tt.before(m)
			}
			resize := protocol.Resize{Layout: layout, Key: "k", N: tt.n}
			sized := resize.Judge(m.Do(&pb.TxnRequest{Success: resize.Reads()}))
			if tt.then != nil {
				tt.then(m)
			}
			if (sized.Whole != nil) != tt.whole || sized.Done != tt.done {
				t.Fatalf("%+v", sized)
			}
			if tt.whole || tt.done {
				return
			}
			owner := m.Get(layout.Own("k"))
			if resp := m.request(sized.Change); resp.Succeeded == tt.refused || tt.refused && m.Get(layout.Own("k")) != owner {
				t.Errorf("changed: %v", resp.Succeeded)
			}
			if kv := m.KV(layout.Own("k")); tt.want == "" && !tt.refused && kv != nil || tt.want != "" && string(kv.Value) != tt.want {
				t.Errorf("the record is %v", kv)
			}
		})
	}
}

// A caller that knows a record of readers shares the key only under that record.
func TestKnownRecord(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		then func(m *model)
		want string // of the first try
	}{
		"there":   {then: func(*model) {}, want: "granted"},
		"gone":    {then: func(m *model) { m.End('a'); m.remove(layout.Own("k")) }, want: "again"},
		"another": {then: func(m *model) { m.End('a'); m.remove(layout.Own("k")); m.has("b", shared()) }, want: "again"},
		"an owner in its place": {
			then: func(m *model) { m.End('a'); m.remove(layout.Own("k")); m.has("o", exclusive()) }, want: "held by o",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			m.has("a", shared())
			known := m.KV(layout.Own("k")).ModRevision
			mode := protocol.NewShared(layout, "k").Knowing(known, 0)
			c := m.caller("c", mode, noEpoch)
			tt.then(m)
			if got := c.take(); got != tt.want {
				t.Errorf("takes: %q", got)
			}
			if tt.want != "again" {
				return
			}
			if s, ok := c.Mode.(protocol.Shared); !ok || s.Knowing(known, 0) != s {
				t.Error("it believes again in a record that it has found gone")
			}
			if got := c.take(); got != "granted" || c.held().Token().Fence != m.KV(layout.Own("k")).ModRevision {
				t.Errorf("takes: %q", got)
			}
		})
	}
}

// An undo of the first reader, whose reply was lost, also deletes the record that it has put.
func TestUndoOfTheFirstReader(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	c := m.caller("c", shared(), noEpoch)
	m.fate = losesReply
	c.take()
	if got := m.names(); got != "own/k own/k#shared-c" {
		t.Errorf("etcd has %q", got)
	}
	m.request(protocol.Undo{Try: &c.Try, Unsure: true}.Build())
	if got := m.names(); got != "" {
		t.Errorf("etcd has %q", got)
	}
}

// A caller whose reply was lost finds the slot that it was handed instead of the one it has tried.
func TestConfirmedInAnotherSlot(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	m.put(layout.Own("k"), protocol.SlotsRecord(2), 0)
	c := m.caller("c", protocol.NewSlots(layout, "k", 2, 0), noEpoch)
	other := protocol.SlotKey("k", 1-c.Mode.Keys().Slot)
	rev := m.put(layout.Own(other), c.Value, c.Lease)
	confirm := protocol.Confirm{Try: &c.Try, Enqueues: true}
	if got := confirm.Judge(m.request(confirm.Build())); got != rev || c.Mode.Keys().Claim != other {
		t.Errorf("confirmed at %d as %q", got, c.Mode.Keys().Claim)
	}
}
