package record

import (
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A call learns of each record once, and learns when the record was deleted.
func TestCallFollowsTheRecord(t *testing.T) {
	t.Parallel()
	var w Known
	done := &mvccpb.KeyValue{Value: []byte(Record{State: Done, Attempt: 1}.Value().Encode()), ModRevision: 5}
	bad := &mvccpb.KeyValue{Value: []byte("{"), ModRevision: 6}
	for i, tt := range []struct {
		kv     *mvccpb.KeyValue
		news   bool
		state  State
		failed bool
	}{{nil, false, "", false}, {done, true, Done, false}, {done, false, Done, false}, {bad, true, Unreadable, true}, {nil, true, "", false}} {
		news := w.Changed(tt.kv)
		state := State("")
		if w.Prev != nil {
			state = w.Prev.State
		}
		if news != tt.news || state != tt.state || (w.Err != nil) != tt.failed || w.KV != tt.kv || tt.kv != nil && w.Rev != tt.kv.ModRevision || tt.kv == nil && w.Rev != 0 {
			t.Errorf("%d: news %v, revision %d, %q, %v", i, news, w.Rev, state, w.Err)
		}
	}
	w.Changed(done)
	if w.Rev = -1; !w.Changed(done) {
		t.Error("a record that is to be read anew is no news")
	}
}

// What is put back of an orphan keeps its fence.
func TestRestoredOrphan(t *testing.T) {
	t.Parallel()
	claimed := Record{State: Claimed, Attempt: 2, Claim: "c"}
	w := Known{Key: "k"}
	w.Changed(&mvccpb.KeyValue{Value: []byte(claimed.Value().Encode()), ModRevision: 5})
	claimed.Fence = 5
	want := claimed.Value().Encode()
	if got := w.Restored(); got != want {
		t.Errorf("put back: %s, want %s", got, want)
	}
	w.Changed(&mvccpb.KeyValue{Value: []byte(w.Restored()), ModRevision: 9})
	if got := w.Restored(); got != want {
		t.Errorf("put back once more: %s, want %s", got, want)
	}
}
