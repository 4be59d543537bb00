package item_test

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// step builds the request of a verb, or another one that ends a hold.
type step interface{ Build() *pb.TxnRequest }

type byHand struct{ item.Held }

func (s byHand) Build() *pb.TxnRequest {
	return &pb.TxnRequest{Success: []*pb.RequestOp{txn.Delete([]byte(s.Key()))}}
}

// Each verb leaves the item in one place, is refused afterwards, and is found in the history.
func TestVerbs(t *testing.T) {
	soon := noon.Add(time.Minute)
	for name, test := range map[string]struct {
		verb     func(h item.Held) step
		where    string
		attempts int
		as       string
	}{
		"complete":   {func(h item.Held) step { return item.Complete{Held: h} }, "", 0, item.VerbComplete},
		"remembered": {func(h item.Held) step { return item.Complete{Held: h, Keep: 7, Remember: true} }, "", 0, item.VerbComplete},
		"adopted":    {func(h item.Held) step { return item.Complete{Held: h, Keep: 7} }, "", 0, item.VerbComplete},
		"fail":       {func(h item.Held) step { return item.Fail{Held: h, Now: noon} }, "ready", 1, item.VerbFail},
		"back-off":   {func(h item.Held) step { return item.Fail{Held: h, Now: noon, Wait: 1} }, "later", 1, item.VerbFail},
		"permanent":  {func(h item.Held) step { return item.Fail{Held: h, Permanent: true} }, "dead", 1, item.VerbFail},
		"snooze":     {func(h item.Held) step { return item.Snooze{Held: h, Until: soon, Now: noon} }, "later", 0, item.VerbSnooze},
		"release":    {func(h item.Held) step { return item.Release{Held: h} }, "ready", 0, item.VerbRelease},
		"discard":    {func(h item.Held) step { return item.Discard{Held: h} }, "dead", 1, item.VerbDiscard},
		"cancelled": {func(h item.Held) step {
			e := &item.Entry{KV: &mvccpb.KeyValue{Key: []byte(h.Key()), ModRevision: h.Rev}, State: h.State}
			return item.CancelTaken{Keys: keys, Entry: e, Notice: item.Notice{By: "b", Why: "w"}, Lease: 7}
		}, "", 0, item.VerbCancel},
		"by hand": {func(h item.Held) step { return byHand{h} }, "", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.etcd, _ = w.etcd.Grant(7)
			w.enqueue("a", noon)
			held := w.claim("s1")
			held.By = "b"
			in := test.verb(held).Build()
			resp := w.do(in)
			if !resp.Succeeded {
				t.Fatal("refused")
			}
			w.want(test.where)
			if test.where != "" {
				prefix := map[string]string{"ready": keys.Ready(), "later": keys.Later(), "dead": keys.Dead()}[test.where]
				if st := w.entry(prefix).State; st.Attempts != test.attempts || !st.Moved || st.Owner != "" || st.Epoch != 0 {
					t.Errorf("%+v", st)
				}
			}
			if test.as == "" {
				in = item.Release{Held: held, Now: noon}.Build()
			}
			if again := w.do(in); again.Succeeded || held.Refused(again) != item.Gone {
				t.Error("the verb of a hold that has ended was carried out")
			}
			ended := item.Ended{Keys: keys, ID: "a", Key: held.Key(), Rev: resp.Header.Revision}
			end, err := ended.Judge(w.ask(ended.Build()...))
			if err != nil || end.Verb != test.as && test.as != "" {
				t.Errorf("%+v, %v", end, err)
			}
			if kept := name == "remembered" || name == "adopted" || test.where != ""; held.Mine(end) != kept {
				t.Errorf("%+v is one's own: %v", end, held.Mine(end))
			}
			if test.where != "" {
				if left, err := end.JudgeLeft(w.ask(end.Left()...)); err != nil || left.Attempts != test.attempts {
					t.Errorf("%+v, %v", left, err)
				}
			}
		})
	}
}

// The last attempt buries the item, with what all attempts said.
func TestFailInTheLastAttempt(t *testing.T) {
	w := newWorld(t)
	w.enqueue("a", noon)
	w.do(item.Fail{Held: w.claim("s1"), Cause: "one", Now: noon}.Build())
	priority := 3
	fail := item.Fail{Held: w.claim("s2"), Cause: "two", Priority: &priority, Now: noon}
	if !fail.Last() {
		t.Error("not the last attempt")
	}
	w.do(fail.Build())
	w.want("dead")
	st := w.entry(keys.Dead()).State
	if h := st.History; len(h) != 2 || h[1].Error != "two" || h[0].Fence >= h[1].Fence {
		t.Errorf("%+v", h)
	}
	if st.Why != "failed: two" || st.Priority != 3 {
		t.Errorf("%+v", st)
	}
}

// A worker whose item was given to another is refused, also if the item is at the same key again.
func TestVerbOfAFormerWorker(t *testing.T) {
	w := newWorld(t)
	w.enqueue("a", noon)
	held := w.claim("s1")
	w.do(item.Release{Held: held, Now: noon}.Build())
	again := w.claim("s1")
	resp := w.do(item.Complete{Held: held, Now: noon}.Build())
	if resp.Succeeded || held.Refused(resp) != item.Anew || again.Fence() <= held.Fence() {
		t.Errorf("%v after fence %d, now %d", resp.Succeeded, held.Fence(), again.Fence())
	}
	adopted := again
	adopted.Elsewhere = true
	w.delete(keys.Own("s1"))
	if resp := w.do(item.Complete{Held: adopted, Now: noon}.Build()); resp.Succeeded || adopted.Refused(resp) != item.Stands {
		t.Error("completed for a session that is over")
	}
	w.want("taken")
}

func TestMove(t *testing.T) {
	w := newWorld(t)
	w.enqueue("a", noon)
	held := w.claim("s1")
	move := item.Move{Held: held, To: "s2", Owner: "o2", Nonce: "n"}
	resp := w.do(move.Build())
	moved := move.Moved(resp.Header.Revision)
	if !resp.Succeeded || moved.Fence() <= held.Fence() {
		t.Fatalf("%v, fence %d after %d", resp.Succeeded, moved.Fence(), held.Fence())
	}
	again := w.do(move.Build())
	other := move
	other.Nonce = "m"
	if again.Succeeded || move.Earlier(again) != moved.Rev || other.Earlier(again) != 0 {
		t.Error("the second request does not find the first")
	}
	if w.do(item.Release{Held: held, Now: noon}.Build()).Succeeded {
		t.Error("released with the fence from before")
	}
	ended := item.Ended{Keys: keys, ID: "a", Rev: moved.Rev}
	if end, err := ended.Judge(w.ask(ended.Build()...)); err != nil || end.Verb != item.VerbHeartbeat || held.Mine(end) {
		t.Errorf("%+v, %v", end, err)
	}
	if !w.do(item.Complete{Held: moved, Now: noon}.Build()).Succeeded {
		t.Error("not completed with the new fence")
	}
	w.want("")
}
