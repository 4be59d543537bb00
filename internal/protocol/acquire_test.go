package protocol_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func exclusive() protocol.Mode { return protocol.Exclusive{Layout: layout, Key: "k"} }
func slots() protocol.Mode     { return protocol.NewSlots(layout, "k", 1, 0) }
func shared() protocol.Mode    { return protocol.NewShared(layout, "k") }

var modes = map[string]func() protocol.Mode{"exclusive": exclusive, "slots": slots, "shared": shared}

// take makes one try by Take and, if the reply does not explain a refusal, Look.
func (c *caller) take() string {
	resp := c.request(protocol.Take{Try: &c.Try}.Build())
	if resp == nil {
		return "unknown"
	}
	taken := protocol.Take{Try: &c.Try}.Judge(resp)
	if taken.Rev > 0 {
		return "granted"
	}
	seen := taken.Seen
	if seen == nil {
		v := protocol.Look{Try: &c.Try}.Judge(c.request(protocol.Look{Try: &c.Try}.Build()))
		seen = &v
	}
	return c.verdict(*seen)
}

func (c *caller) verdict(seen protocol.Seen) string {
	if c.Has(seen) > 0 {
		return "granted"
	}
	v, err := c.Judge(seen, c.epoch())
	if err != nil {
		return err.Error()
	}
	switch v.Outcome {
	case protocol.Again:
		return "again"
	case protocol.OtherEpoch:
		return "other epoch"
	case protocol.HeldByOther:
		h, _ := protocol.DecodeHolder(v.Own.Value)
		return "held by " + strings.Trim(h.Owner+" "+h.Kind, " ")
	case protocol.BehindLine:
		return fmt.Sprint("behind ", v.Waiting)
	case protocol.Unmet:
		return "unmet"
	case protocol.OtherClaim:
		return "other claim"
	}
	return "?"
}

// epoch is what the model has.
func (m *model) epoch() *txn.Epoch {
	kv := m.KV(layout.Epoch())
	if kv == nil {
		return &txn.Epoch{}
	}
	v, _ := keyspace.ParseEpoch(string(kv.Value))
	return &txn.Epoch{Value: v, Rev: kv.ModRevision}
}

// join makes one try by Join.
func (c *caller) join() string {
	resp := c.request(protocol.Join{Try: &c.Try}.Build())
	if resp == nil {
		return "unknown"
	}
	j, err := protocol.Join{Try: &c.Try}.Judge(resp)
	switch {
	case err != nil:
		return err.Error()
	case j.Old:
		return "other epoch"
	case j.Twice:
		return "granted twice"
	case j.Rev > 0:
		return "granted"
	}
	return c.position(j.Position)
}

func (c *caller) position(p protocol.Position) string {
	var said []string
	if p.Own != nil {
		h, _ := protocol.DecodeHolder(p.Own.Value)
		said = append(said, "held by "+strings.Trim(h.Owner+" "+h.Kind, " "))
	}
	if p.Pred != nil {
		said = append(said, "behind "+protocol.PlacedID(p.Pred.Key))
	}
	for what, is := range map[string]bool{"behind": p.Behind, "next": p.Next} {
		if is {
			said = append(said, what)
		}
	}
	if p.Readers {
		said = append(said, "readers")
	}
	if p.Unnoticed {
		said = append(said, "unnoticed")
	}
	return strings.Join(said, ", ")
}

// advance makes one try of a waiter.
func (c *caller) advance() string {
	resp := c.request(protocol.Advance{Try: &c.Try}.Build())
	if resp == nil {
		return "unknown"
	}
	if resp.Succeeded {
		c.Granted(resp.Header.Revision)
		return "granted"
	}
	p, rev, at, err := c.Stand(protocol.Advance{Try: &c.Try}.Judge(resp), c.epoch())
	switch {
	case err != nil:
		return err.Error()
	case at == protocol.Given && rev > 0:
		return "given"
	case at == protocol.Out:
		return "out"
	case at == protocol.Moved:
		return "moved"
	case at == protocol.Denied:
		return "unmet"
	}
	return c.position(p)
}

// has makes another caller have the key in a mode.
func (m *model) has(id string, mode protocol.Mode) *caller {
	m.tb.Helper()
	c := m.caller(id, mode, m.epoch())
	for range 3 {
		if c.take() == "granted" {
			return c
		}
	}
	m.tb.Fatalf("%s cannot have the key", id)
	return nil
}

// Who tries to take a key gets it if it is free, and else the reason.
func TestTake(t *testing.T) {
	t.Parallel()
	unmet := []*pb.Compare{txn.CreatedAfter([]byte("/x"), 0)}
	for name, tt := range map[string]struct {
		before func(m *model)
		mode   func() protocol.Mode
		with   func(c *caller)
		want   string // outcomes of tries, one after the other
		keys   string // that are there afterwards
	}{
		"free": {mode: exclusive, want: "granted", keys: "own/k"},
		"held": {before: func(m *model) { m.has("o", exclusive()) }, mode: exclusive, want: "held by o", keys: "own/k"},
		"held by another caller with its name": {
			before: func(m *model) {
				m.put(layout.Own("k"), protocol.Holder{Claim: "o", Owner: "c", Instance: "i"}.Encode(), 'c')
			},
			mode: exclusive, want: "held by c", keys: "own/k",
		},
		"with a note":       {mode: exclusive, with: func(c *caller) { c.Ask.Note = "n" }, want: "granted", keys: "note/k own/k"},
		"a line":            {before: func(m *model) { m.waits("w", exclusive()) }, mode: exclusive, want: "behind 1", keys: "wait/w"},
		"a line of readers": {before: func(m *model) { m.waits("w", shared()) }, mode: exclusive, want: "behind 1", keys: "wait/~w"},
		"an unmet condition": {
			mode: exclusive, with: func(c *caller) { c.Ask.If = unmet }, want: "unmet",
		},
		"an unmet condition of a key that is held": {
			before: func(m *model) { m.has("o", exclusive()) },
			mode:   exclusive, with: func(c *caller) { c.Ask.If = unmet }, want: "held by o", keys: "own/k",
		},
		"another epoch": {before: func(m *model) { m.put(layout.Epoch(), "1", 0) }, mode: exclusive, want: "other epoch"},
		"in the place of its own": {
			before: func(m *model) { m.has("o", exclusive()) }, mode: exclusive,
			with: func(c *caller) {
				c.Over = &protocol.Over{Rev: c.Revision(), Guard: []*pb.Compare{txn.ModifiedAt([]byte(layout.Own("k")), c.Revision())}}
			},
			want: "granted", keys: "own/k",
		},
		"in the place of what is over": {
			before: func(m *model) { m.has("o", exclusive()) }, mode: exclusive,
			with: func(c *caller) {
				c.Over = &protocol.Over{Rev: 1, Guard: []*pb.Compare{txn.ModifiedAt([]byte(layout.Own("k")), 1)}}
			},
			want: "other claim", keys: "own/k",
		},
		"in the place of its own, with an unmet condition": {
			before: func(m *model) { m.has("o", exclusive()) }, mode: exclusive,
			with: func(c *caller) {
				c.Over = &protocol.Over{Rev: c.Revision(), Guard: []*pb.Compare{txn.ModifiedAt([]byte(layout.Own("k")), c.Revision())}}
				c.Ask.If = unmet
			},
			want: "unmet", keys: "own/k",
		},

		"the first slot":     {mode: slots, want: "again, granted", keys: "own/k own/k#slot-0"},
		"a slot that is not": {before: func(m *model) { m.has("o", slots()) }, mode: slots, want: "held by o, held by o", keys: "own/k own/k#slot-0"},
		"a slot of a known number": {
			before: func(m *model) { m.has("o", slots()); m.remove(layout.Own("k#slot-0")) }, mode: slots,
			want: "granted", keys: "own/k own/k#slot-0",
		},
		"another number of slots": {
			before: func(m *model) { m.has("o", protocol.NewSlots(layout, "k", 3, 0)); m.End('o') }, mode: slots,
			want: "etcdclaims: another number of slots: the key has 3, the call asks for 1; Resize changes the number", keys: "own/k",
		},
		"a slot of a key that is held": {before: func(m *model) { m.has("o", exclusive()) }, mode: slots, want: "held by o", keys: "own/k"},
		"a key with slots":             {before: func(m *model) { m.has("o", slots()) }, mode: exclusive, want: "held by slots", keys: "own/k own/k#slot-0"},
		"a slot behind a line": {
			before: func(m *model) { m.has("o", slots()); m.waits("w", slots()); m.End('o') }, mode: slots, want: "behind 1, behind 1", keys: "own/k wait/w",
		},

		"the first reader": {mode: shared, want: "granted", keys: "own/k own/k#shared-c"},
		"another reader": {
			before: func(m *model) { m.has("o", shared()) }, mode: shared, want: "again, granted", keys: "own/k own/k#shared-c own/k#shared-o",
		},
		"a reader of what is held": {before: func(m *model) { m.has("o", exclusive()) }, mode: shared, want: "held by o", keys: "own/k"},
		"a writer of what is read": {before: func(m *model) { m.has("o", shared()) }, mode: exclusive, want: "held by shared", keys: "own/k own/k#shared-o"},
		"a reader behind a writer": {
			before: func(m *model) { m.has("o", shared()); m.waits("w", exclusive()) }, mode: shared, want: "behind 1", keys: "own/k own/k#shared-o wait/w",
		},
		"a reader behind a reader that waits": {
			before: func(m *model) { m.waits("w", shared()) }, mode: shared, want: "granted", keys: "own/k own/k#shared-c wait/~w",
		},
		"a reader of another epoch": {
			before: func(m *model) { m.has("o", shared()); m.put(layout.Epoch(), "1", 0) }, mode: shared,
			with: func(c *caller) { c.Epoch = c.epoch() }, want: "held by shared", keys: "own/k own/k#shared-o",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			if tt.before != nil {
				tt.before(m)
			}
			c := m.caller("c", tt.mode(), noEpoch)
			if tt.with != nil {
				tt.with(c)
			}
			var got []string
			for range strings.Split(tt.want, ", ") {
				got = append(got, c.take())
			}
			if strings.HasPrefix(tt.want, "etcdclaims") {
				got = got[:1]
			}
			if got := strings.Join(got, ", "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := m.names(); got != tt.keys {
				t.Errorf("etcd has %q, want %q", got, tt.keys)
			}
		})
	}
}

// waits makes a caller wait in line for a key that another has, and lets that go.
func (m *model) waits(id string, mode protocol.Mode) *caller {
	m.tb.Helper()
	c := m.caller(id, mode, m.epoch())
	if m.KV(layout.Own("k")) != nil {
		if got := c.join(); !strings.Contains(got, "held") {
			m.tb.Fatalf("%s joins the line: %s", id, got)
		}
		return c
	}
	m.put(layout.Own("k"), "x", 'x')
	if got := c.join(); got != "held by" && !strings.HasPrefix(got, "held") {
		m.tb.Fatalf("%s joins the line: %s", id, got)
	}
	m.End('x')
	return c
}

// A waiter advances when the place before its own is gone and the key is free, and knows else
// what it waits for.
func TestAdvance(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		holder, before, mode func() protocol.Mode // who has the key, waits before, and waits
		joins                string               // what it learns when it joins
		then                 func(m *model, c *caller)
		want                 string
		keys                 string
	}{
		"the first of a held key": {holder: exclusive, mode: exclusive, joins: "held by o", want: "held by o", keys: "own/k wait/c"},
		"the first of a free key": {
			holder: exclusive, mode: exclusive, joins: "held by o", then: func(m *model, _ *caller) { m.End('o') }, want: "granted", keys: "own/k",
		},
		"the second of a free key": {
			holder: exclusive, before: exclusive, mode: exclusive, joins: "held by o, behind", then: func(m *model, _ *caller) { m.End('o') },
			want: "behind b", keys: "wait/b wait/c",
		},
		"the second, after the first has left": {
			holder: exclusive, before: exclusive, mode: exclusive, joins: "held by o, behind", then: func(m *model, _ *caller) { m.End('o'); m.End('b') },
			want: "granted", keys: "own/k",
		},
		"without its place": {
			holder: exclusive, mode: exclusive, joins: "held by o", then: func(m *model, c *caller) { m.remove(c.PlaceKey()) }, want: "out", keys: "own/k",
		},
		"with another place": {
			holder: exclusive, mode: exclusive, joins: "held by o",
			then: func(m *model, c *caller) { m.remove(c.PlaceKey()); m.put(c.PlaceKey(), c.PlaceValue, c.Lease) }, want: "moved", keys: "own/k wait/c",
		},
		"under another epoch": {
			holder: exclusive, mode: exclusive, joins: "held by o", then: func(m *model, _ *caller) { m.put(layout.Epoch(), "1", 0) }, want: "moved", keys: "own/k wait/c",
		},
		"after it was given up": {
			holder: exclusive, mode: exclusive, joins: "held by o", then: func(m *model, c *caller) {
				m.End('o')
				m.request(protocol.Undo{Try: &c.Try, Enqueues: true}.Build())
			}, want: "out",
		},
		"that was handed the key": {
			holder: exclusive, mode: exclusive, joins: "held by o",
			then: func(m *model, c *caller) { m.put(layout.Own("k"), c.Value, c.Lease); m.remove(c.PlaceKey()) }, want: "given", keys: "own/k",
		},
		"an unmet condition": {
			holder: exclusive, mode: exclusive, joins: "held by o",
			then: func(m *model, c *caller) { m.End('o'); c.Ask.If = []*pb.Compare{txn.CreatedAfter([]byte("/x"), 0)} }, want: "unmet", keys: "wait/c",
		},
		"a suspected holder": {
			holder: exclusive, mode: exclusive, joins: "held by o",
			then: func(m *model, c *caller) {
				rev := m.KV(layout.Own("k")).ModRevision
				c.Over = &protocol.Over{Rev: rev, Guard: []*pb.Compare{txn.ModifiedAt([]byte(layout.Own("k")), rev)}, Notify: txn.Put([]byte("/p/session/o/evict/o"), "", int64('o'))}
			},
			want: "granted", keys: "own/k session/o/evict/o",
		},

		"a slot": {
			holder: slots, mode: slots, joins: "held by o", then: func(m *model, _ *caller) { m.End('o') }, want: "granted", keys: "own/k own/k#slot-0",
		},
		"a slot of a new number": {
			holder: slots, mode: slots, joins: "held by o", then: func(m *model, _ *caller) {
				m.put(layout.Own("k"), protocol.Holder{Kind: protocol.KindSlots, Slots: 2}.Encode(), 0)
			}, want: "next, granted", keys: "own/k own/k#slot-0 own/k#slot-1",
		},
		"a slot of a number that was chosen while it waited": {
			holder: exclusive, mode: slots, joins: "held by o", then: func(m *model, _ *caller) {
				m.End('o')
				m.put(layout.Own("k"), protocol.SlotsRecord(2), 0)
				m.put(layout.Own("k#slot-1"), "x", 'x')
			}, want: "next, granted", keys: "own/k own/k#slot-0 own/k#slot-1",
		},

		"a reader behind a writer that waits": {
			holder: shared, before: exclusive, mode: shared, joins: "behind", want: "behind b", keys: "own/k own/k#shared-o wait/b wait/~c",
		},
		"a writer behind readers": {holder: shared, mode: exclusive, joins: "held by shared, readers, unnoticed", want: "held by shared, readers, unnoticed", keys: "own/k own/k#shared-o wait/c"},
		"a reader behind a writer that holds": {
			holder: exclusive, mode: shared, joins: "held by o", then: func(m *model, _ *caller) { m.End('o') }, want: "granted", keys: "own/k own/k#shared-c",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			m.has("o", tt.holder())
			if tt.before != nil {
				m.waits("b", tt.before())
			}
			c := m.caller("c", tt.mode(), noEpoch)
			if got := c.join(); got != tt.joins {
				t.Errorf("joins: %q, want %q", got, tt.joins)
			}
			if tt.then != nil {
				tt.then(m, c)
			}
			got := c.advance()
			if strings.HasPrefix(tt.want, "next, ") {
				got += ", " + c.advance()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := m.names(); got != tt.keys {
				t.Errorf("etcd has %q, want %q", got, tt.keys)
			}
		})
	}
}
