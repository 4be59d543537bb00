package item_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func watchOf(from, end string) *pb.WatchCreateRequest {
	return &pb.WatchCreateRequest{Key: []byte(from), RangeEnd: []byte(end), StartRevision: 1}
}

// An item goes to the first of two sessions that have read it.
func TestClaimOnce(t *testing.T) {
	w := newWorld(t)
	w.enqueue("a", noon)
	e := w.entry(keys.Ready())
	first := item.Claim{Keys: keys, Session: "s1", Items: []*item.Entry{e}, Nonce: "1", Now: noon}
	second := item.Claim{Keys: keys, Session: "s2", Items: []*item.Entry{e}, Nonce: "2", Now: noon}
	got, _ := first.Judge(w.do(first.Build()))
	if len(got) != 1 || got[0].State.Attempts != 1 || e.State.Attempts != 0 {
		t.Errorf("%+v of %+v", got, e.State)
	}
	if none, removed := second.Judge(w.do(second.Build())); len(none) != 0 || removed != 0 {
		t.Errorf("%+v, %d", none, removed)
	}
	w.want("taken")
	for _, claim := range []item.Claim{first, second} {
		found, unreadable := claim.JudgeReads(w.ask(claim.Reads()...))
		if want := claim.Session == "s1"; (len(found) == 1) != want || unreadable != nil {
			t.Errorf("%s finds %+v, %v", claim.Session, found, unreadable)
		}
	}
	other := first
	other.Nonce = "3"
	if found, _ := other.JudgeReads(w.ask(other.Reads()...)); len(found) != 0 {
		t.Errorf("another claim of the session finds %+v", found)
	}
}

func TestClaimOfASecondKey(t *testing.T) {
	w := newWorld(t)
	w.enqueue("a", noon)
	e := w.entry(keys.Ready())
	w.claim("s1")
	w.put(e.Key(), item.Encode(e.State))
	step := item.Claim{Keys: keys, Session: "s1", Items: []*item.Entry{w.entry(keys.Ready())}, Now: noon}
	if got, second := step.Judge(w.do(step.Build())); len(got) != 0 || second != 1 {
		t.Errorf("%+v, %d", got, second)
	}
	w.want("taken")
}

func TestClaimWithinSlots(t *testing.T) {
	w := newWorld(t)
	w.enqueue("a", noon)
	e := w.entry(keys.Ready())
	e.State.Slot = 1
	step := item.Claim{Keys: keys, Session: "s1", Items: []*item.Entry{e}, Now: noon}
	got, _ := step.Judge(w.do(step.Build()))
	w.enqueue("b", noon)
	e = w.entry(keys.Ready())
	e.State.Slot = 1
	step.Items = []*item.Entry{e}
	if none, _ := step.Judge(w.do(step.Build())); len(none) != 0 {
		t.Errorf("%+v in a slot that another has", none)
	}
	slot := item.FreeSlot{Keys: keys, Slot: w.under(keys.Slots())[0]}
	if w.do(slot.Build()).Succeeded {
		t.Error("the slot of a taken item was freed")
	}
	head := item.Head{Keys: keys, Ready: 1, Later: 1, Limited: true}
	if f := head.Judge(w.ask(head.Build()...)); !f.Used[1] || f.Paused != nil || len(f.Ready.Kvs) != 1 || len(f.Later.Kvs) != 0 {
		t.Errorf("%+v", f)
	}
	w.do(item.Release{Held: item.Held{Keys: keys, Session: "s1", State: got[0].State, Rev: got[0].Rev}, Now: noon}.Build())
	if len(w.under(keys.Slots())) != 0 {
		t.Error("a slot is left")
	}
}

func TestClaimOfAPausedQueue(t *testing.T) {
	w := newWorld(t)
	w.enqueue("a", noon)
	w.do(keys.Pause(item.Pausing{By: "me"}, 0))
	step := item.Claim{Keys: keys, Session: "s1", Items: []*item.Entry{w.entry(keys.Ready())}, Now: noon}
	if w.do(step.Build()).Succeeded {
		t.Error("an item was claimed")
	}
	if w.do(keys.Pause(item.Pausing{By: "you"}, 0)).Succeeded || !w.do(keys.Resume()).Succeeded || w.do(keys.Resume()).Succeeded {
		t.Error("a pause was made or ended twice")
	}
	if !w.do(step.Build()).Succeeded {
		t.Error("no item was claimed after the pause")
	}
}

// A request of an earlier generation is not carried out, and its reply has the present one.
func TestVoidRequest(t *testing.T) {
	w := newWorld(t)
	w.put(keys.Worker("s1"), "{}")
	gen := item.Generation{Keys: keys, Session: "s1", Rev: w.etcd.Revision()}
	late := gen.Require(&pb.TxnRequest{
		Success: []*pb.RequestOp{txn.Put([]byte("x"), "", int64(0))}, Failure: []*pb.RequestOp{txn.Get([]byte("x"))},
	})
	void := w.do(gen.Void("{}", txn.Get([]byte("x"))))
	resp := w.do(late)
	if now := gen.Judge(resp); resp.Succeeded || now != void.Header.Revision {
		t.Errorf("generation %d, want %d", now, void.Header.Revision)
	}
	w.enqueue("a", noon)
	held := w.claim("s1")
	if w.do(gen.Leave()).Succeeded {
		t.Error("the entry of a session with an item was removed")
	}
	w.do(item.Release{Held: held, Now: noon}.Build())
	if !w.do(gen.Leave()).Succeeded || gen.Judge(w.do(late)) != 0 {
		t.Error("the entry was not removed")
	}
}
