package protocol_test

import (
	"slices"
	"testing"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// held is the claim of a caller that has its key.
func (c *caller) held() *protocol.Held {
	kv := c.KV(layout.Own(c.Mode.Keys().Claim))
	h := protocol.NewHeld(&c.Try, c.Epoch.Fence(kv.ModRevision))
	return &h
}

// readLine reads the line behind a claim.
func (m *model) readLine(r protocol.Release) protocol.LineRead {
	return r.JudgeLine(m.Do(&pb.TxnRequest{Success: r.ReadLine()}))
}

// A release hands the key to the first in line that a releaser can serve, or frees it.
func TestRelease(t *testing.T) {
	t.Parallel()
	served := func(m *model, id string, mode protocol.Mode) { m.waits(id, mode) }
	for name, tt := range map[string]struct {
		mode   func() protocol.Mode
		before func(m *model)
		with   protocol.Release
		blind  bool // without reading the line first
		then   func(m *model)
		want   string // who gets the key, "freed", or why the release was refused
		keys   string
	}{
		"nobody waits":               {mode: exclusive, want: "freed"},
		"nobody waits, as is hoped":  {mode: exclusive, blind: true, want: "freed"},
		"somebody waits, unexpected": {mode: exclusive, blind: true, before: func(m *model) { served(m, "w", exclusive()) }, want: "refused, kept", keys: "own/k wait/w"},
		"one waits":                  {mode: exclusive, before: func(m *model) { served(m, "w", exclusive()) }, want: "w", keys: "own/k session/i/won/w"},
		"two wait": {
			mode: exclusive, before: func(m *model) { served(m, "w", exclusive()); served(m, "v", exclusive()) },
			want: "w", keys: "own/k session/i/won/w wait/v",
		},
		"the preferred of two": {
			mode: exclusive, before: func(m *model) {
				served(m, "w", exclusive())
				c := m.caller("v", exclusive(), noEpoch)
				c.Value = protocol.Holder{Claim: "v", Instance: "i", Preference: 1}.Encode()
				c.PlaceValue = c.Value
				c.join()
			},
			with: protocol.Release{Prefers: true}, want: "v", keys: "own/k session/i/won/v wait/w",
		},
		"the heir": {
			mode: exclusive, before: func(m *model) {
				for _, id := range []string{"w", "v", "u"} {
					c := m.caller(id, exclusive(), noEpoch)
					c.Value = protocol.Holder{Claim: id, Instance: "of " + id, Preference: 3}.Encode()
					c.PlaceValue = c.Value
					c.join()
				}
			},
			with: protocol.Release{Prefers: true, Heir: "of v"}, want: "v", keys: "own/k session/of v/won/v wait/u wait/w",
		},
		"an heir that has left": {
			mode: exclusive, before: func(m *model) { served(m, "w", exclusive()); served(m, "v", exclusive()) },
			with: protocol.Release{Prefers: true, Heir: "of v"}, want: "w", keys: "own/k session/i/won/w wait/v",
		},
		"one who serves itself": {
			mode: exclusive, before: func(m *model) {
				c := m.caller("v", exclusive(), noEpoch)
				c.PlaceValue = protocol.Holder{Claim: "v", Kind: protocol.KindSelf}.Encode()
				c.join()
			},
			want: "freed", keys: "wait/v",
		},
		"the first of two with equal preferences": {
			mode: exclusive, before: func(m *model) { served(m, "w", exclusive()); served(m, "v", exclusive()) },
			with: protocol.Release{Prefers: true}, want: "w", keys: "own/k session/i/won/w wait/v",
		},
		"a place with the claim of another": {
			mode: exclusive, before: func(m *model) {
				m.put(layout.Place("k", "v"), protocol.Holder{Claim: "w", Instance: "i"}.Encode(), 'v')
			},
			want: "freed", keys: "wait/v",
		},
		"a place of an epoch before": {
			mode: exclusive, before: func(m *model) {
				m.put(layout.Place("k", "v"), protocol.Holder{Claim: "v", Instance: "i", Epoch: -1}.Encode(), 'v')
			},
			want: "freed", keys: "wait/v",
		},
		"a place with the name of an earlier one": {
			mode: exclusive, before: func(m *model) {
				m.put(layout.Place("k", "v"), protocol.Holder{Claim: "w", Place: "v", Instance: "i"}.Encode(), 'v')
			},
			want: "w", keys: "own/k session/i/won/w",
		},
		"a copy of a place with the name of an earlier one": {
			mode: exclusive, before: func(m *model) {
				m.put(layout.Place("k", "w"), protocol.Holder{Claim: "w", Place: "v", Instance: "i"}.Encode(), 'v')
			},
			want: "freed", keys: "wait/w",
		},
		"a place without a lease": {
			mode: exclusive, before: func(m *model) { m.put(layout.Place("k", "v"), protocol.Holder{Claim: "v", Instance: "i"}.Encode(), 0) },
			want: "freed", keys: "wait/v",
		},
		"a place that cannot be read": {
			mode: exclusive, before: func(m *model) { m.put(layout.Place("k", "v"), "?", 'v') }, want: "freed", keys: "wait/v",
		},
		"the first has left": {
			mode: exclusive, before: func(m *model) { served(m, "w", exclusive()) }, then: func(m *model) { m.End('w') }, want: "refused, kept", keys: "own/k",
		},
		"a note and a notice": {
			mode: exclusive, before: func(m *model) { m.put(layout.Note("k"), "n", 'c'); m.put(layout.Notice("i", "c"), "n", 'c') },
			with: protocol.Release{Noted: true, Noticed: true}, want: "freed",
		},
		"the key was taken away": {mode: exclusive, then: func(m *model) { m.remove(layout.Own("k")) }, want: "refused, deleted"},
		"another has the key":    {mode: exclusive, then: func(m *model) { m.End('c'); m.has("o", exclusive()) }, want: "refused, replaced", keys: "own/k"},
		"the epoch was raised, and one waits": {
			mode: exclusive, before: func(m *model) { served(m, "w", exclusive()) }, then: func(m *model) { m.put(layout.Epoch(), "1", 0) },
			want: "refused, epoch raised", keys: "own/k wait/w",
		},
		"the epoch was raised": {mode: exclusive, then: func(m *model) { m.put(layout.Epoch(), "1", 0) }, want: "freed"},

		"a slot": {mode: slots, before: func(m *model) { served(m, "w", slots()) }, want: "w", keys: "own/k own/k#slot-0 session/i/won/w"},
		"a slot of a record that was put again": {
			mode: slots, before: func(m *model) {
				served(m, "w", slots())
				m.put(layout.Own("k"), protocol.Holder{Kind: protocol.KindSlots, Slots: 1}.Encode(), 0)
			},
			want: "w", keys: "own/k own/k#slot-0 session/i/won/w",
		},
		"the last reader":    {mode: shared, with: protocol.Release{Alone: true}, want: "freed"},
		"not the last one":   {mode: shared, before: func(m *model) { m.has("o", shared()) }, with: protocol.Release{Alone: true}, want: "freed", keys: "own/k own/k#shared-o"},
		"one of two readers": {mode: shared, before: func(m *model) { m.has("o", shared()) }, want: "freed", keys: "own/k own/k#shared-o"},
		"the last, unaware":  {mode: shared, want: "freed, record remains", keys: "own/k"},
		"a writer waits":     {mode: shared, before: func(m *model) { served(m, "w", exclusive()) }, with: protocol.Release{Alone: true}, want: "freed", keys: "wait/w"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			c := m.has("c", tt.mode())
			if tt.before != nil {
				tt.before(m)
			}
			r := tt.with
			r.Held = c.held()
			line := protocol.Line{}
			if !tt.blind {
				line = m.readLine(r).Line
			}
			if tt.then != nil {
				tt.then(m)
			}
			in, to := r.Pass(line)
			resp := m.request(in)
			got := to
			switch {
			case !resp.Succeeded:
				got = "refused, " + stateName(m.readLine(r).State)
			case to == "":
				got = "freed"
			}
			if _, remains := r.Emptied(resp, 0); resp.Succeeded && remains {
				got += ", record remains"
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

func stateName(s protocol.State) string {
	return map[protocol.State]string{
		protocol.Kept: "kept", protocol.Deleted: "deleted", protocol.Replaced: "replaced", protocol.EpochRaised: "epoch raised",
		protocol.RecordDeleted: "record deleted", protocol.RecordReplaced: "record replaced",
	}[s]
}

// The new owner of a handed-over key can release it to the next without reading the line.
func TestNoticeHasTheNext(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	c := m.has("c", exclusive())
	m.waits("v", exclusive())
	m.waits("w", exclusive())
	r := protocol.Release{Held: c.held(), Trace: "t"}
	in, to := r.Pass(m.readLine(r).Line)
	m.request(in)
	n, err := protocol.DecodeNotice(m.KV(layout.Notice("i", to)).Value)
	if err != nil || to != "v" || len(n.Next) != 1 || n.Next[0].Name != "w" || n.More || n.Trace != "t" {
		t.Fatalf("%s: %+v, %v", to, n, err)
	}
	v := m.caller("v", exclusive(), noEpoch)
	next := protocol.Release{Held: v.held(), Noticed: true}
	in, to = next.Pass(protocol.Line{Known: true, Next: n.Next, More: n.More})
	if resp := m.request(in); !resp.Succeeded || to != "w" || m.names() != "own/k session/i/won/w" {
		t.Errorf("handed to %q: %v, etcd has %q", to, resp.Succeeded, m.names())
	}
}

// The operations of a holder are carried out with its release exactly if the claim is its client's,
// whatever it has learnt from the line meanwhile.
func TestReleaseWithOperations(t *testing.T) {
	t.Parallel()
	raise := func(m *model) { m.put(layout.Epoch(), "1", 0) }
	for name, tt := range map[string]struct {
		mode         func() protocol.Mode
		before, then func(m *model)
		refused      bool
	}{
		"kept":                     {mode: exclusive},
		"another epoch":            {mode: exclusive, then: raise, refused: true},
		"a slot":                   {mode: slots},
		"a slot of another number": {mode: slots, then: func(m *model) { m.put(layout.Own("k"), protocol.SlotsRecord(2), 0) }},
		"a slot of a new record": {mode: slots, then: func(m *model) {
			m.remove(layout.Own("k"))
			m.put(layout.Own("k"), protocol.SlotsRecord(1), 0)
		}, refused: true},
		"a reader":               {mode: shared},
		"a reader, later epoch":  {mode: shared, before: raise},
		"a reader, raised epoch": {mode: shared, then: raise, refused: true},
		"a reader of another record": {mode: shared, then: func(m *model) {
			m.remove(layout.Own("k"))
			m.put(layout.Own("k"), protocol.Holder{Kind: protocol.KindShared}.Encode(), 0)
		}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			if tt.before != nil {
				tt.before(m)
			}
			r := protocol.Release{Held: m.has("c", tt.mode()).held(), Alone: true}
			if tt.then != nil {
				tt.then(m)
			}
			line := m.readLine(r).Line
			in, _ := r.Pass(line)
			resp := m.request(r.With(in, []*pb.RequestOp{txn.Put([]byte("/x"), "done", int64(0))}, nil))
			if resp.Succeeded == tt.refused || (m.KV("/x") == nil) != tt.refused {
				t.Errorf("carried out: %v, %v", resp.Succeeded, m.KV("/x"))
			}
			if _, remains := r.Emptied(resp, 1); remains {
				t.Errorf("etcd has %q", m.names())
			}
		})
	}
}

// Operations share a round trip if they are known to concern nothing else.
func TestWithConcern(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	r := protocol.Release{Held: m.has("c", exclusive()).held(), Alone: true}
	ops := []*pb.RequestOp{txn.Put([]byte("/x"), "done", int64(0))}
	for name, tt := range map[string]struct {
		ops     []*pb.RequestOp
		concern []string
		shares  bool
		also    string
	}{
		"none":     {nil, nil, true, ""},
		"anything": {ops, nil, false, ""},
		"the key":  {ops, []string{}, true, ""},
		"more":     {ops, []string{"a"}, true, "a"},
	} {
		in, _ := r.Pass(protocol.Line{})
		got := r.With(in, tt.ops, tt.concern)
		if got.Key != "" != tt.shares || slices.Contains(got.Also, "a") != (tt.also != "") {
			t.Errorf("%s: the request concerns %q, %q", name, got.Key, got.Also)
		}
	}
}

// A waiter of the same client gets the key within one request, unless others came before.
func TestWithin(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	c, own := m.has("c", exclusive()), layout.Own("k")
	r := protocol.Release{Held: c.held()}
	if resp := m.request(r.Within(protocol.Line{}, "next", 'c')); !resp.Succeeded || string(m.KV(own).Value) != "next" {
		t.Errorf("%v, %v", resp.Succeeded, m.KV(own))
	}
	m.End('c')
	c = m.has("c", exclusive())
	m.waits("w", exclusive())
	r = protocol.Release{Held: c.held()}
	resp := m.request(r.Within(protocol.Line{}, "next", 'c'))
	if resp.Succeeded {
		t.Fatal("it has passed a waiter")
	}
	line := r.JudgeLine(resp)
	if line.State != protocol.Kept || len(line.Line.Next) != 1 {
		t.Errorf("%+v", line)
	}
	if resp := m.request(r.Within(line.Line, "next", 'c')); !resp.Succeeded { // it came before
		t.Error("refused")
	}
}

// A claim is moved once, and whose key is another's is not.
func TestMove(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	c := m.has("c", exclusive())
	m.put(layout.Note("k"), "n", 'c')
	m.put(layout.Notice("i", "c"), "{}", 'c')
	m.Lend('r')
	move := protocol.Move{Held: c.held(), To: "resting", Lease: 'r'}
	for range 2 {
		if !move.Judge(m.request(move.Build())) {
			t.Error("not moved")
		}
	}
	if kv := m.KV(layout.Own("k")); kv.Lease != 'r' || m.names() != "own/k" {
		t.Errorf("%v, etcd has %q", kv, m.names())
	}
	m.End('r')
	if move.Judge(m.request(move.Build())) {
		t.Error("moved, although no request was unsure")
	}
	if move.Unsure = true; !move.Judge(m.request(move.Build())) {
		t.Error("it may have been moved by a request before")
	}
	m.has("o", exclusive())
	if move.Judge(m.request(move.Build())) {
		t.Error("moved the claim of another")
	}
}

// A guard holds exactly as long as the claim is its client's, and the reason is found.
func TestGuard(t *testing.T) {
	t.Parallel()
	record := func(m *model, value string) { m.put(layout.Own("k"), value, 0) }
	for name, tt := range map[string]struct {
		mode func() protocol.Mode
		then func(m *model)
		want string
	}{
		"kept":                        {mode: exclusive, then: func(*model) {}, want: "kept"},
		"deleted":                     {mode: exclusive, then: func(m *model) { m.remove(layout.Own("k")) }, want: "deleted"},
		"put again":                   {mode: exclusive, then: func(m *model) { m.put(layout.Own("k"), "x", 'c') }, want: "replaced"},
		"of another lease":            {mode: exclusive, then: func(m *model) { m.Restore(layout.Own("k"), 'd') }, want: "replaced"},
		"another epoch":               {mode: exclusive, then: func(m *model) { m.put(layout.Epoch(), "1", 0) }, want: "epoch raised"},
		"a slot":                      {mode: slots, then: func(*model) {}, want: "kept"},
		"a slot of another number":    {mode: slots, then: func(m *model) { record(m, protocol.Holder{Kind: protocol.KindSlots, Slots: 9}.Encode()) }, want: "kept"},
		"a slot without its record":   {mode: slots, then: func(m *model) { m.remove(layout.Own("k")) }, want: "record deleted"},
		"a slot of a new record":      {mode: slots, then: func(m *model) { m.remove(layout.Own("k")); record(m, "x") }, want: "record replaced"},
		"a reader":                    {mode: shared, then: func(*model) {}, want: "kept"},
		"a reader without its record": {mode: shared, then: func(m *model) { m.remove(layout.Own("k")) }, want: "record deleted"},
		"a reader of another record":  {mode: shared, then: func(m *model) { record(m, "x") }, want: "record replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			c := m.has("c", tt.mode())
			h := c.held()
			tt.then(m)
			owner := protocol.Owner{Held: h}
			got := stateName(owner.Judge(m.request(owner.Build())))
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			resp := m.Do(&pb.TxnRequest{Compare: h.Guard()})
			if resp.Succeeded != (tt.want == "kept") {
				t.Errorf("the guard holds: %v", resp.Succeeded)
			}
			verify := protocol.Verify{Layout: layout, Held: []*protocol.Held{h}, Waits: []protocol.Wait{{Key: "/x", Rev: 0}, {Key: "/y", Rev: 7}}}
			states, changed := verify.Judge(m.request(verify.Reads()))
			if got := stateName(states[0]); got != tt.want && tt.want != "epoch raised" {
				t.Errorf("verified %q, want %q", got, tt.want)
			}
			if !changed[0] || !changed[1] {
				t.Errorf("keys that are not there: %v", changed)
			}
			verify.Waits = nil
			resp = m.Do(verify.Build())
			if resp.Succeeded != (tt.want == "kept" || tt.want == "epoch raised") || h.OfEpoch(verify.Epoch(resp)) != protocol.Kept != (tt.want == "epoch raised") {
				t.Errorf("verification: %v", resp.Succeeded)
			}
		})
	}
}
