package protocol_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// All tries are undone, also if their request arrives only after that.
func TestAllOrNoneUndone(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	p := m.plays(m.caller("c", exclusive(), noEpoch))
	second := &protocol.Acquisition{Try: p.try.Try}
	second.Mode = protocol.Exclusive{Layout: layout, Key: "l"}
	p.acq = &protocol.AllOrNone{Acquisition: p.try, With: []*protocol.Try{&second.Try}}
	p.plays("take late refused", "take, confirm, unsettled undo")
	second.Follows(p.try)
	m.request(second.Undoing(nil).Build())
	m.arrive()
	m.request(p.try.Undoing(nil).Build())
	if got := m.names(); got != "" {
		t.Errorf("etcd has %q", got)
	}
}

// An attempt for several keys has all of them or none, and names the first that it cannot have.
func TestAllOrNone(t *testing.T) {
	t.Parallel()
	has := func(key string) func(m *model, c *caller) {
		return func(m *model, _ *caller) { m.has("o", protocol.Exclusive{Layout: layout, Key: key}) }
	}
	strays := func(m *model, c *caller) { m.put(layout.Own("l"), c.Value, c.Lease) }
	for script, tt := range map[string]struct {
		before      func(m *model, c *caller)
		unmet, then bool
		want        string
		of          int
		keys        string
	}{
		"take reply":                      {want: "take, won", keys: "own/k own/l"},
		"take twice":                      {want: "take, won", keys: "own/k own/l"},
		"take reply learnt":               {before: has("k"), want: "take, learn, held by o", keys: "own/k"},
		"take reply learnt # the second":  {before: has("l"), want: "take, learn, held by o", of: 1, keys: "own/l"},
		"take reply learnt # a line":      {before: func(m *model, _ *caller) { m.waits("w", exclusive()) }, want: "take, learn, behind", keys: "wait/w"},
		"take reply learnt # unmet":       {unmet: true, want: "take, learn, unmet"},
		"take #epoch reply learnt":        {want: "take, learn, again"},
		"take reply learnt # readers":     {before: func(m *model, _ *caller) { m.has("o", shared()) }, want: "take, learn, clear", keys: "own/k own/k#shared-o"},
		"take reply learnt reply":         {before: func(m *model, _ *caller) { m.has("o", shared()) }, want: "take, learn, clear, held by shared of 1", keys: "own/k own/k#shared-o"},
		"take reply learnt # a stray":     {before: strays, want: "take, learn, held strays by c", of: 1, keys: "own/l"},
		"take reply learnt # stray, then": {before: strays, then: true, want: "take, learn, held strays twice by c", of: 1, keys: "own/l"},
		"take reply refused":              {before: has("k"), want: "take, learn, failed", keys: "own/k"},
		"take transient":                  {want: "take, later"},
		"take session-gone":               {want: "take, later"},
		"take lose reply":                 {want: "take, confirm, again"},
		"take late reply #arrive":         {want: "take, confirm, again"},
		"take lose-reply reply":           {want: "take, confirm, won", keys: "own/k own/l"},
		"take lose-reply #free-k reply":   {want: "take, confirm, again"},
		"take lose-reply refused":         {want: "take, confirm, unsettled undo", keys: "own/k own/l"},
		"take lose lose resumed reply":    {want: "take, confirm, doubt 0, confirm, again"},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			c := m.caller("c", exclusive(), noEpoch)
			if tt.before != nil {
				tt.before(m, c)
			}
			p := m.plays(c)
			second := c.Try
			second.Mode = protocol.Exclusive{Layout: layout, Key: "l"}
			if tt.unmet {
				p.try.Ask.If = []*pb.Compare{txn.CreatedAfter([]byte("/x"), 0)}
			}
			if tt.then {
				p.try.Ask.Then = []*pb.RequestOp{txn.Put([]byte("/y"), "y", int64(0))}
			}
			p.acq = &protocol.AllOrNone{Acquisition: p.try, With: []*protocol.Try{&second}}
			p.plays(script, tt.want)
			if p.last.Of != tt.of {
				t.Errorf("it is about try %d, want %d", p.last.Of, tt.of)
			}
			if got := m.names(); got != tt.keys {
				t.Errorf("etcd has %q, want %q", got, tt.keys)
			}
		})
	}
}
