package work

import (
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A plan learns of each record once, and learns when the record was deleted.
func TestPlanFollowsTheRecord(t *testing.T) {
	t.Parallel()
	var w plan
	done := &mvccpb.KeyValue{Value: []byte(Record{State: StateDone, Attempt: 1}.stored().encode()), ModRevision: 5}
	bad := &mvccpb.KeyValue{Value: []byte("{"), ModRevision: 6}
	for i, tt := range []struct {
		kv     *mvccpb.KeyValue
		news   bool
		state  State
		failed bool
	}{{nil, false, "", false}, {done, true, StateDone, false}, {done, false, StateDone, false}, {bad, true, StateUnreadable, true}, {nil, true, "", false}} {
		news := w.Changed(tt.kv)
		state := State("")
		if w.prev != nil {
			state = w.prev.State
		}
		if news != tt.news || state != tt.state || (w.err != nil) != tt.failed || w.Known() != tt.kv || tt.kv != nil && w.Rev() != tt.kv.ModRevision || tt.kv == nil && w.Rev() != 0 {
			t.Errorf("%d: news %v, revision %d, %q, %v", i, news, w.Rev(), state, w.err)
		}
	}
	w.Changed(done)
	if w.rev = -1; !w.Changed(done) {
		t.Error("a record that is to be read anew is no news")
	}
}

// An orphan was claimed by somebody else. What is put back of it keeps its fence.
func TestPlanOfAnOrphan(t *testing.T) {
	t.Parallel()
	claimed := Record{State: StateClaimed, Attempt: 2, Claim: "c"}
	w := plan{key: "k"}
	w.Changed(&mvccpb.KeyValue{Value: []byte(claimed.stored().encode()), ModRevision: 5})
	if w.Granted(true) || !w.Granted(false) {
		t.Error("an orphan is what was not superseded")
	}
	claimed.Fence = 5
	if got, want := w.restored(), claimed.stored().encode(); got != want {
		t.Errorf("put back: %s, want %s", got, want)
	}
	w.Changed(&mvccpb.KeyValue{Value: []byte(w.restored()), ModRevision: 9})
	if got, want := w.restored(), claimed.stored().encode(); got != want {
		t.Errorf("put back once more: %s, want %s", got, want)
	}
}
