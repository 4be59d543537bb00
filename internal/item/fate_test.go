package item_test

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// What becomes of an item is the same whether its keys are read again, or heard of.
func TestFate(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(w *world, held item.Held) *pb.TxnRequest
		want string
	}{
		"completed": {func(_ *world, h item.Held) *pb.TxnRequest {
			return item.Complete{Held: h, Keep: 7, Remember: true, Result: []byte("r")}.Build()
		}, "completed with r"},
		"completed and forgotten": {func(_ *world, h item.Held) *pb.TxnRequest {
			return item.Complete{Held: h}.Build()
		}, "gone"},
		"discarded": {func(_ *world, h item.Held) *pb.TxnRequest {
			return item.Discard{Held: h}.Build()
		}, "dead"},
		"released": {func(_ *world, h item.Held) *pb.TxnRequest {
			return item.Release{Held: h, Now: noon}.Build()
		}, "open"},
		"failed": {func(_ *world, h item.Held) *pb.TxnRequest {
			return item.Fail{Held: h, Now: noon, Wait: time.Hour}.Build()
		}, "open"},
		"enqueued anew": {func(w *world, h item.Held) *pb.TxnRequest {
			w.do(item.Complete{Held: h}.Build())
			w.enqueue("a", noon)
			return &pb.TxnRequest{}
		}, "gone"},
		"replaced": {func(w *world, h item.Held) *pb.TxnRequest {
			w.do(item.Discard{Held: h}.Build())
			other := item.New{ID: "a", Seq: "other", Vesting: noon}
			return item.Replace{Keys: keys, Entry: w.entry(keys.Dead()), New: other, Now: noon}.Build()
		}, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.etcd, _ = w.etcd.Grant(7)
			w.enqueue("a", noon)
			held := w.claim("s1")
			read, heard := &item.Fate{Keys: keys, ID: "a"}, &item.Fate{Keys: keys, ID: "a"}
			before := w.ask(read.Build()...)
			read.Judge(before)
			heard.Judge(before)
			wantFate(t, read, "open")
			w.do(test.do(w, held))
			read.Judge(w.ask(read.Build()...))
			wantFate(t, read, test.want)
			for _, key := range []string{keys.Place("a"), keys.Content("a")} {
				ev := &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte(key)}}
				if now := w.ask(txn.Get([]byte(key))).Responses[0].GetResponseRange().Kvs; len(now) > 0 {
					ev = &mvccpb.Event{Kv: now[0]}
				}
				heard.Hear(ev)
			}
			wantFate(t, heard, test.want)
		})
	}
}

func wantFate(t *testing.T, f *item.Fate, want string) {
	t.Helper()
	got := "open"
	if f.Gone {
		got = "gone"
	} else if c, err := f.Read(); err != nil {
		t.Fatal(err)
	} else if c.Done != nil {
		got = "completed with " + string(c.Done.Result)
	} else if f.Buried() {
		got = "dead"
	}
	if got != want {
		t.Errorf("the item is %s, want %s", got, want)
	}
}
