package acquire

import (
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/protocol"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A releaser hands a key only to a call that wants nothing but its claim.
func TestWhatACallWants(t *testing.T) {
	t.Parallel()
	slots := protocol.NewSlots(layout, "k", 2, 0)
	for _, tt := range []struct {
		name              string
		call              func(o *Call)
		hasOps, grantable bool
	}{
		{"the key", func(*Call) {}, false, true},
		{"a slot", func(o *Call) { o.Mode = slots }, false, true},
		{"a claim of its own lease", func(o *Call) { o.Manual = true }, false, true},
		{"a preference", func(o *Call) { o.Prefers, o.Preference = true, 1 }, false, true},
		{"to share the key", func(o *Call) { o.Mode = protocol.NewShared(layout, "k") }, false, false},
		{"a note", func(o *Call) { o.Note = []byte{} }, false, false},
		{"a key beside it", func(o *Call) { o.Beside = &partner{} }, false, false},
		{"a condition", func(o *Call) { o.If = make([]clientv3.Cmp, 1) }, true, false},
		{"an operation", func(o *Call) { o.Then = []clientv3.Op{clientv3.OpGet("/q")} }, true, false},
	} {
		o := exclusive("k")
		tt.call(o)
		same(t, tt.name+": has operations", o.HasOps(), tt.hasOps)
		same(t, tt.name+": grantable", o.Grantable(), tt.grantable)
	}
}

// What a call asks for beside the key goes with its claim, and once only.
func TestAsksOfACall(t *testing.T) {
	t.Parallel()
	o := exclusive("k")
	o.Concern = []string{"q"}
	ask := o.asks()
	if ask.If != nil || ask.Then != nil || ask.Note != "" || strings.Join(ask.Concern, " ") != "q" {
		t.Errorf("nothing: %+v", ask)
	}
	o.If = []clientv3.Cmp{clientv3.Compare(clientv3.Version("/q"), "=", 0)}
	o.Then = []clientv3.Op{clientv3.OpPut("/q", "v"), clientv3.OpDelete("/r")}
	o.Note = []byte("n")
	ask = o.asks()
	same(t, "conditions", len(ask.If), 1)
	same(t, "operations", len(ask.Then), 2)
	same(t, "note", ask.Note, protocol.NewNote(1, []byte("n")))
}

// A call is in line from the first time on, however many attempts it makes there.
func TestACallWaitsFromTheFirstTimeOn(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, _ *world) {
		o := exclusive("k")
		same(t, "not in line", o.InLine.IsZero(), true)
		since := clock.Mono()
		o.Waits()
		pass(time.Minute)
		o.Waits()
		same(t, "since", o.InLine, since)
	})
}
