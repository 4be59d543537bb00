package protocol_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/protocol"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A waiter takes the key from the holder that it suspects, if that has not answered, and notifies it.
func TestSuspicion(t *testing.T) {
	t.Parallel()
	question := layout.Question("o", "i")
	for name, tt := range map[string]struct {
		then func(m *model)
		want string
	}{
		"silent":   {want: "granted"},
		"answered": {then: func(m *model) { m.remove(question) }, want: "held by o"},
		"answered, and asked again": {
			then: func(m *model) { m.remove(question); m.put(question, "?", 'c') }, want: "held by o",
		},
		"another has the key": {
			then: func(m *model) { m.put(layout.Own("k"), protocol.Holder{Claim: "p", Owner: "p"}.Encode(), 'p') }, want: "held by p",
		},
		"the same revision, on another lease": {
			then: func(m *model) { m.Restore(layout.Own("k"), 'p') }, want: "held by o",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			m.put(layout.Own("k"), protocol.Holder{Claim: "o", Owner: "o", Instance: "o", Suspectable: true}.Encode(), 'o')
			c := m.caller("c", exclusive(), noEpoch)
			c.join()
			own := m.KV(layout.Own("k"))
			h, ok := protocol.Accuses(layout, own, 0)
			if !ok {
				t.Fatal("it may not suspect the holder")
			}
			c.Over = protocol.Suspicion{Own: own, Holder: h, Question: question, Rev: m.put(question, "?", 'c')}.Over(layout, "c", "silent")
			if tt.then != nil {
				tt.then(m)
			}
			if got := c.advance(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			notice := m.KV(layout.Eviction("o", "o"))
			if told := notice != nil && notice.Lease == 'o'; told != (tt.want == "granted") {
				t.Errorf("the holder is told: %v", notice)
			}
		})
	}
}

// Only a holder of this epoch that has agreed to it, and is of another client, is suspected.
func TestAccuses(t *testing.T) {
	t.Parallel()
	good := protocol.Holder{Claim: "o", Instance: "o", Suspectable: true, Epoch: 1}
	for name, tt := range map[string]struct {
		with  func(h *protocol.Holder)
		lease int64
		want  bool
	}{
		"suspectable":      {lease: 'o', want: true},
		"without a lease":  {},
		"not suspectable":  {lease: 'o', with: func(h *protocol.Holder) { h.Suspectable = false }},
		"moved":            {lease: 'o', with: func(h *protocol.Holder) { h.Kind = protocol.KindZombie }},
		"of no client":     {lease: 'o', with: func(h *protocol.Holder) { h.Instance = "" }},
		"of its own":       {lease: 'o', with: func(h *protocol.Holder) { h.Instance = "i" }},
		"of another epoch": {lease: 'o', with: func(h *protocol.Holder) { h.Epoch = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := good
			if tt.with != nil {
				tt.with(&h)
			}
			if _, ok := protocol.Accuses(layout, &mvccpb.KeyValue{Value: []byte(h.Encode()), Lease: tt.lease}, 1); ok != tt.want {
				t.Errorf("%v", ok)
			}
		})
	}
	if _, ok := protocol.Accuses(layout, nil, 1); ok {
		t.Error("nobody")
	}
}
